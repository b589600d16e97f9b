// The functions of engine/cuda/gpus.h in a build without CUDA.
#include "engine/cuda/gpus.h"

namespace sluice {
namespace {

absl::Status NotBuilt() {
  return absl::UnimplementedError(
      "this build has no CUDA; set device: cpu, or build Sluice with -DSLUICE_CUDA=ON");
}

}  // namespace

absl::StatusOr<int> CountGpus() { return NotBuilt(); }

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(int, const GpuOptions&) { return NotBuilt(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(std::unique_ptr<Device>,
                                                        const CudaBackendOptions&) {
  return NotBuilt();
}

}  // namespace sluice
