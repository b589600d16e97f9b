#include "engine/cuda/cuda_device.h"
#include "loadtest/gpu/open_device.h"

namespace sluice::gpu {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice() { return MakeCudaDevice(0); }

}  // namespace sluice::gpu
