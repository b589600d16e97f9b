// The backend of a CUDA device: weights in the dtype of the profile, one captured graph per bucket
// and slot.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/device.h"

namespace sluice {

struct CudaBackendOptions {
  // The type of weights, activations and KV pages: "f32" or "bf16". Part of the profile.
  std::string dtype = "bf16";
  // The implementation of dense layers. "own" is this project's kernel, which computes only the
  // live rows. "cublaslt" computes all rows of the bucket, and uses this project's kernel for
  // shapes without an invariant algorithm of the library. "auto" is cublaslt if the library is
  // found. Part of the profile.
  std::string dense = "auto";
  // A table of the library's algorithms that replaces the committed tables; empty to use those. Its
  // digest is part of the profile.
  std::string algorithms = "";
  // The kernels of attention and of the products that no library computes. "portable" kernels run
  // on every GPU. "auto" is the first kernel for this GPU that passes its trial with the model's
  // weights (engine/cuda/selected_kernels.h). Part of the profile.
  std::string kernels = "portable";
  // The number of host threads for row work, such as classifiers (engine/model/output_heads.h). 0
  // uses every thread that the process may use.
  int threads = 1;
  // The label of metrics.
  std::string device = "cuda:0";
  // For tests: before every replay, fills the memory that it must not read with NaN.
  bool poison = false;
};

// Returns InvalidArgument for options out of range or a malformed table. Returns FailedPrecondition
// if the requested library is missing or the table is for another one. Returns NotFound if the file
// does not exist.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                         const CudaBackendOptions& options);

}  // namespace sluice
