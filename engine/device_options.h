// Which device computes, and the options of the CUDA backend. config/ fills these and enforces the
// ranges given here.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// "auto", "cpu" or "cuda:N".
struct DeviceChoice {
  enum class Kind {
    kAuto,  // the first GPU, where this build and this host have one, else the CPU
    kCpu,
    kCuda,
  };
  Kind kind = Kind::kAuto;
  int32_t index = 0;  // of the GPU, for kCuda. [0, 1023].
};

struct CudaOptions {
  // Of weights, activations and KV pages: "f32" or "bf16". Part of the numerics profile.
  std::string dtype = "bf16";
  // What computes dense layers: "own", our kernel, or "cublaslt". Part of the numerics profile.
  std::string dense = "own";
  // File of a table of the library's algorithms, in place of those in the binary; empty: those. Part of
  // the numerics profile by its digest.
  std::string algorithms;
  // Fill everything that a replay must not read with NaN before it. For tests; slow.
  bool poison = false;
};

}  // namespace sluice
