// The choice of the device that computes, and the options of the CUDA backend. option_specs.cc says
// the effect and the range of each.
#pragma once

#include <cstdint>
#include <string>

#include "base/enum_names.h"

namespace sluice {

// "auto", "cpu" or "cuda:N".
struct DeviceChoice {
  enum class Kind {
    kAuto,  // the first GPU if this build and this host have one that can be used, else the CPU
    kCpu,
    kCuda,
  };
  Kind kind = Kind::kAuto;
  int32_t index = 0;  // the number of the GPU, for kCuda
};
constexpr auto EnumNamesOf(DeviceChoice::Kind) {
  using enum DeviceChoice::Kind;
  return EnumNameTable<DeviceChoice::Kind>({{kAuto, "auto"}, {kCpu, "cpu"}, {kCuda, "cuda"}});
}

struct CudaOptions {
  std::string dtype = "bf16";
  std::string dense = "auto";
  std::string algorithms;
  std::string kernels = "auto";
  std::string wait = "block";
  bool poison = false;
};

}  // namespace sluice
