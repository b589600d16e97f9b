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
  // The implementation of dense layers: "own", this project's kernel, which computes the live rows
  // alone; "cublaslt", which computes all rows of the bucket, with our kernel where no algorithm of
  // the library is invariant; or "auto", cublaslt where the library is found. Part of the profile.
  std::string dense = "auto";
  // A table of the library's algorithms in place of the committed ones; empty for those. Its digest
  // is part of the profile.
  std::string algorithms = "";
  // The kernels of attention, and of the products that no library computes: "portable", those that
  // run on every GPU; or "auto", the first of those for this GPU that passes its trial with the
  // model's weights (engine/cuda/selected_kernels.h). Part of the profile.
  std::string kernels = "portable";
  // The threads of the host that share its work on the rows of a step, such as their classifiers
  // (engine/model/output_heads.h). 0: as many as the process may use.
  int threads = 1;
  // The label of metrics.
  std::string device = "cuda:0";
  // For tests: fills, before every replay, all memory that it must not read with NaN.
  bool poison = false;
};

// Returns InvalidArgument for options out of range or a malformed table, FailedPrecondition if the
// library is asked for and not there or the table is for another one, and NotFound if the file is
// not there.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Device> device,
                                                         const CudaBackendOptions& options);

}  // namespace sluice
