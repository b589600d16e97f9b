#include "server/daemon/device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cuda/gpus.h"

namespace sluice {
namespace {

absl::StatusOr<GpuChoice> ChooseFirst(const GpuAccess& gpus) {
  const absl::StatusOr<int> count = gpus.count();
  if (absl::IsUnimplemented(count.status()) || absl::IsNotFound(count.status())) {
    return GpuChoice{};
  }
  if (!count.ok()) return GpuChoice{.warning = std::string(count.status().message())};
  if (*count == 0) return GpuChoice{};
  const absl::Status opened = gpus.open(0);
  if (opened.ok()) return GpuChoice{.index = 0};
  if (!absl::IsFailedPrecondition(opened)) return opened;
  return GpuChoice{.warning = std::string(opened.message())};
}

absl::StatusOr<GpuChoice> ChooseIndex(int index, const GpuAccess& gpus) {
  const std::string wanted = absl::StrCat("device: cuda:", index, " is configured, but ");
  const absl::StatusOr<int> count = gpus.count();
  if (!count.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(wanted, count.status().message()));
  }
  if (*count == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(wanted, "this host has no visible GPU; set device to auto or cpu"));
  }
  if (index >= *count) {
    return absl::FailedPreconditionError(
        absl::StrCat(wanted, "the GPUs are cuda:0 to cuda:", *count - 1));
  }
  SLUICE_RETURN_IF_ERROR(gpus.open(index));
  return GpuChoice{.index = index};
}

}  // namespace

absl::StatusOr<GpuChoice> ChooseGpu(const DeviceChoice& choice, const GpuAccess& gpus) {
  switch (choice.kind) {
    case DeviceChoice::Kind::kAuto:
      return ChooseFirst(gpus);
    case DeviceChoice::Kind::kCuda:
      return ChooseIndex(choice.index, gpus);
    case DeviceChoice::Kind::kCpu:
      break;
  }
  return GpuChoice{};
}

absl::Status CheckGpuAttention(const AttentionOptions& attention, int gpu) {
  using Kind = AttentionVariant::Kind;
  const Kind kind = attention.variant.kind;
  if (kind == Kind::kAuto || kind == Kind::kOnePass) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "engine.attention.variant is ", AttentionVariantName(attention.variant), ", but cuda:", gpu,
      " supports only one_pass; set it to auto or one_pass, or serve on the CPU"));
}

absl::StatusOr<ChosenBackend> MakeBackend(const DeviceChoice& choice, const CpuOptions& cpu,
                                          const CudaOptions& cuda,
                                          const AttentionOptions& attention,
                                          std::function<int64_t()> free_memory) {
  std::unique_ptr<Device> device;
  const auto open = [&](int index) {
    SLUICE_ASSIGN_OR_RETURN(device, OpenGpu(index, {.spin = cuda.wait == "spin"}));
    return absl::OkStatus();
  };
  SLUICE_ASSIGN_OR_RETURN(const GpuChoice gpu,
                          ChooseGpu(choice, {.count = CountGpus, .open = open}));
  ChosenBackend chosen;
  if (!gpu.warning.empty()) {
    chosen.warnings.push_back(absl::StrCat("device: auto uses the CPU: ", gpu.warning));
  }
  if (!gpu.index.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(chosen.backend, MakeCpuBackend(cpu, attention, std::move(free_memory)));
    return chosen;
  }
  SLUICE_RETURN_IF_ERROR(CheckGpuAttention(attention, *gpu.index));
  if (!device->info().warning.empty()) chosen.warnings.push_back(device->info().warning);
  chosen.kernels = device->KernelTable();
  SLUICE_ASSIGN_OR_RETURN(
      chosen.backend,
      MakeGpuBackend(std::move(device), {.dtype = cuda.dtype,
                                         .dense = cuda.dense,
                                         .algorithms = cuda.algorithms,
                                         .kernels = cuda.kernels,
                                         .threads = cpu.threads,
                                         .device = absl::StrCat("cuda:", *gpu.index),
                                         .poison = cuda.poison}));
  return chosen;
}

}  // namespace sluice
