// The choice of the backend, by the option `device`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/device.h"
#include "engine/device_options.h"
#include "engine/options.h"

namespace sluice {

// The functions of engine/cuda/gpus.h.
struct GpuAccess {
  std::function<absl::StatusOr<int>()> count;
  std::function<absl::Status(int)> open;  // makes the device of a GPU
};

struct GpuChoice {
  std::optional<int> index = std::nullopt;  // of the GPU that was opened; nullopt for the CPU
  std::string warning = "";  // why a GPU that seems to be there is not used; empty if none is there
};

// Returns the GPU to use, and calls `gpus` only where its answers matter. Returns
// FailedPrecondition, with the reason, if `choice` demands a GPU that this process cannot use.
// Without such a demand the CPU serves instead.
absl::StatusOr<GpuChoice> ChooseGpu(const DeviceChoice& choice, const GpuAccess& gpus);

struct ChosenBackend {
  std::unique_ptr<Backend> backend;
  std::vector<std::string> warnings;
  std::vector<KernelInfo> kernels;  // those of a GPU
};

// Makes the backend that `choice` asks for. `free_memory` is that of MakeCpuBackend. Returns
// FailedPrecondition for an order of attention that the device does not have.
absl::StatusOr<ChosenBackend> MakeBackend(const DeviceChoice& choice, const CpuOptions& cpu,
                                          const CudaOptions& cuda,
                                          const AttentionOptions& attention,
                                          std::function<int64_t()> free_memory = {});
// Returns an error that names the option, unless a GPU can serve `attention`.
absl::Status CheckGpuAttention(const AttentionOptions& attention, int gpu);

}  // namespace sluice
