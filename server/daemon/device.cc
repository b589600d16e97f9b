#include "server/daemon/device.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cuda/gpus.h"

namespace sluice {

absl::StatusOr<std::optional<int>> ChooseGpu(
    const DeviceChoice& choice, const std::function<absl::StatusOr<int>()>& count_gpus) {
  if (choice.kind == DeviceChoice::Kind::kCpu) return std::nullopt;
  const absl::StatusOr<int> count = count_gpus();
  if (choice.kind == DeviceChoice::Kind::kAuto) {
    if (!count.ok() || *count == 0) return std::nullopt;
    return 0;
  }
  const std::string wanted = absl::StrCat("device: cuda:", choice.index, " is asked for, but ");
  if (!count.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(wanted, count.status().message()));
  }
  if (*count == 0) {
    return absl::FailedPreconditionError(absl::StrCat(wanted, "this host shows no GPU"));
  }
  if (choice.index >= *count) {
    return absl::FailedPreconditionError(
        absl::StrCat(wanted, "GPUs go from cuda:0 to cuda:", *count - 1));
  }
  return choice.index;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const DeviceChoice& choice,
                                                     const CpuOptions& cpu,
                                                     const CudaOptions& cuda) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int> gpu, ChooseGpu(choice, CountGpus));
  if (!gpu.has_value()) return MakeCpuBackend(cpu);
  return MakeGpuBackend(*gpu, {.dtype = cuda.dtype,
                               .dense = cuda.dense,
                               .algorithms = cuda.algorithms,
                               .device = absl::StrCat("cuda:", *gpu),
                               .poison = cuda.poison});
}

}  // namespace sluice
