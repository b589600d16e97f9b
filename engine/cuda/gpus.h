// The GPUs of this host, for a binary that may be built without CUDA and may run without a driver
// or a GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/cuda_backend.h"

namespace sluice {

// Returns how many GPUs this process can use. Returns FailedPrecondition with the reason if the
// build lacks CUDA, or the host a driver that is new enough.
absl::StatusOr<int> CountGpus();

// Makes the backend of GPU `index`, in [0, CountGpus()). Returns FailedPrecondition if it lacks
// what the kernels need; other errors are those of MakeCudaBackend.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(int index,
                                                        const CudaBackendOptions& options);

}  // namespace sluice
