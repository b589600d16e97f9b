// The choice of the device that computes, and the options of the CUDA backend. config/ fills these
// and enforces the ranges given here.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// "auto", "cpu" or "cuda:N".
struct DeviceChoice {
  enum class Kind {
    kAuto,  // the first GPU if this build and this host have one, else the CPU
    kCpu,
    kCuda,
  };
  Kind kind = Kind::kAuto;
  int32_t index = 0;  // of the GPU, for kCuda. [0, 1023].
};

struct CudaOptions {
  // The type of weights, activations and KV pages: "f32" or "bf16". Part of the numerics profile.
  std::string dtype = "bf16";
  // The implementation of dense layers: "own", this project's kernel, or "cublaslt". Part of the
  // numerics profile.
  std::string dense = "own";
  // The file of a table of algorithms for cuBLASLt; if empty, the tables in the binary are used.
  // The digest of the table is part of the numerics profile.
  std::string algorithms;
  // Whether all memory that a replay must not read is filled with NaN before it. For tests; slow.
  bool poison = false;
};

}  // namespace sluice
