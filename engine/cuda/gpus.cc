#include "engine/cuda/gpus.h"

#include <utility>

#include "engine/cuda/cuda_device.h"

namespace sluice {

absl::StatusOr<int> CountGpus() { return CudaDeviceCount(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(int index,
                                                        const CudaBackendOptions& options) {
  absl::StatusOr<std::unique_ptr<Device>> device = MakeCudaDevice(index);
  if (!device.ok()) return device.status();
  return MakeCudaBackend(*std::move(device), options);
}

}  // namespace sluice
