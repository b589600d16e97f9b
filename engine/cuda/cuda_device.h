// The implementation of engine/cuda/device.h over the CUDA runtime.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice {

// Returns how many GPUs this process can use. Returns FailedPrecondition, with the message of the
// runtime, if there is no driver or it is too old, and no other error.
absl::StatusOr<int> CudaDeviceCount();

// Makes the device of GPU `index`. Returns InvalidArgument if there is no such GPU, and
// FailedPrecondition if it lacks what the kernels need: compute capability 8.0 and a memory pool.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index);

}  // namespace sluice
