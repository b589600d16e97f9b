// A CUDA device as a Backend: weights in the profile's dtype, one captured graph per bucket and slot.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/device.h"

namespace sluice {

struct CudaBackendOptions {
  // Of weights, activations and KV pages: "f32" or "bf16". Part of the profile.
  std::string dtype = "bf16";
  // What computes dense layers: "own", our kernel, which computes the live rows alone; "cublaslt", all
  // rows of the bucket, with our kernel where no algorithm of the library is invariant. Part of the
  // profile.
  std::string dense = "own";
  // A table of the library's algorithms in place of the committed ones; empty: those. Its digest is part
  // of the profile.
  std::string algorithms = "";
  // The label of metrics.
  std::string device = "cuda:0";
  // For tests: before every replay, fills what it must not read with NaN.
  bool poison = false;
};

// InvalidArgument for options out of range or a malformed table, FailedPrecondition for a library that
// is not there or a table for another one, NotFound for a file that is not there.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                         const CudaBackendOptions& options);

}  // namespace sluice
