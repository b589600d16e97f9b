#include "engine/cuda/gpus.h"

#include <utility>

#include "base/status_macros.h"
#include "engine/cuda/cuda_device.h"

namespace sluice {

absl::StatusOr<int> CountGpus() { return CudaDeviceCount(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(int index,
                                                        const CudaBackendOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeCudaDevice(index));
  return MakeCudaBackend(std::move(device), options);
}

}  // namespace sluice
