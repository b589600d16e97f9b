// The GPUs of this host, for a binary that may be built without CUDA and may run without a driver
// or a GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/device.h"

namespace sluice {

// Returns how many GPUs this process can use. Returns Unimplemented if the build lacks CUDA,
// NotFound if the host has no driver, and FailedPrecondition with the reason if its driver does not
// give access to its GPUs.
absl::StatusOr<int> CountGpus();

struct GpuOptions {
  // Whether a wait for the device first polls for some milliseconds: it ends sooner, and keeps a
  // core busy.
  bool spin = false;
};

// Makes the device of GPU `index`, in [0, CountGpus()). Returns FailedPrecondition if it lacks a
// feature that the kernels need.
absl::StatusOr<std::unique_ptr<Device>> OpenGpu(int index, const GpuOptions& options);

// Makes the backend of a device from OpenGpu. Returns the errors of MakeCudaBackend.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(std::unique_ptr<Device> device,
                                                        const CudaBackendOptions& options);

}  // namespace sluice
