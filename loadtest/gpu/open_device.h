// Opens the device that gpu_bench times: the first GPU, or the emulator for a rehearsal.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice::gpu {

// Returns FailedPrecondition or InvalidArgument with the reason if there is no device.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice();

}  // namespace sluice::gpu
