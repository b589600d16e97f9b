// The implementation of engine/cuda/device.h over the CUDA runtime.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice {

// Returns how many GPUs this process can use, or the errors of CountOf (gpu_count.h).
absl::StatusOr<int> CudaDeviceCount();

struct CudaDeviceOptions {
  bool spin = false;  // whether waiting for an event polls first, for at most 20 ms
  CheckEffort check = {};
};

// Makes the device of GPU `index` and loads all kernels to it. Returns InvalidArgument if there is
// no such GPU, and FailedPrecondition if its compute capability is below 8.0 or the build has no
// kernels for it.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index,
                                                       const CudaDeviceOptions& options = {});

}  // namespace sluice
