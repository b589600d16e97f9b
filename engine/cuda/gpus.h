// The GPUs of this host, for a binary that may have been built without CUDA and may run where there is
// neither a driver nor a GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/cuda_backend.h"

namespace sluice {

// How many GPUs this process can use. FailedPrecondition, with the reason, where the build lacks CUDA,
// or the host a driver that is new enough.
absl::StatusOr<int> CountGpus();

// GPU `index` as a backend, in [0, CountGpus()). FailedPrecondition where it lacks what the kernels
// need; other errors are those of MakeCudaBackend.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(int index,
                                                        const CudaBackendOptions& options);

}  // namespace sluice
