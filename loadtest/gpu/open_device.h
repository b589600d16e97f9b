// The device that gpu_bench times: the first GPU, or the emulator for a rehearsal.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice::gpu {

// FailedPrecondition or InvalidArgument, with the reason, where there is none.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice();

}  // namespace sluice::gpu
