// Which device computes, and the options of the CUDA backend. The effect and the range of each are
// said in option_specs.cc.
#pragma once

#include <cstdint>
#include <string>

#include "base/enum_names.h"

namespace sluice {

// "auto", "cpu" or "cuda:N".
struct DeviceChoice {
  enum class Kind {
    kAuto,  // the first GPU, where this build and this host have one, else the CPU
    kCpu,
    kCuda,
  };
  Kind kind = Kind::kAuto;
  int32_t index = 0;  // of the GPU, for kCuda
};
constexpr auto EnumNamesOf(DeviceChoice::Kind) {
  using enum DeviceChoice::Kind;
  return EnumNameTable<DeviceChoice::Kind>({{kAuto, "auto"}, {kCpu, "cpu"}, {kCuda, "cuda"}});
}

struct CudaOptions {
  std::string dtype = "bf16";
  std::string dense = "own";
  std::string algorithms;
  bool poison = false;
};

}  // namespace sluice
