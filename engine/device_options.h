// The choice of the compute device, and the options of the CUDA backend. option_specs.cc describes
// the effect and the range of each option.
#pragma once

#include <cstdint>
#include <string>

#include "base/enum_names.h"

namespace sluice {

// "auto", "cpu" or "cuda:N".
struct DeviceChoice {
  enum class Kind {
    kAuto,  // the first GPU if this build and this host have a usable one, else the CPU
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
