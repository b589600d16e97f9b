// engine/cuda/device.h over the CUDA runtime.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice {

// How many GPUs this process can use. FailedPrecondition, with the runtime's words, where there is
// no driver or it is too old; never fails otherwise.
absl::StatusOr<int> CudaDeviceCount();

// GPU `index`. InvalidArgument when there is no such GPU, FailedPrecondition when it lacks what the
// kernels need: compute capability 8.0 and a memory pool.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index);

}  // namespace sluice
