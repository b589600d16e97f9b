#include "engine/cuda/gpus.h"

#include <utility>

#include "engine/cuda/cuda_device.h"

namespace sluice {

absl::StatusOr<int> CountGpus() { return CudaDeviceCount(); }

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(int index, const GpuOptions& options) {
  return MakeCudaDevice(index, {.spin = options.spin});
}

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(std::unique_ptr<Device> device,
                                                        const CudaBackendOptions& options) {
  return MakeCudaBackend(std::move(device), options);
}

}  // namespace sluice
