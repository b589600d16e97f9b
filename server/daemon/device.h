// Chooses the backend according to the option `device`.
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
  std::optional<int> index = std::nullopt;  // the GPU that was opened; nullopt for the CPU
  // why a GPU that seems present is not used; empty if none seems present
  std::string warning = "";
};

// Returns the GPU to use, and calls `gpus` only if the answers matter. If `choice` demands a GPU
// that this process cannot use, returns FailedPrecondition with the reason. Otherwise an unusable
// GPU means that the CPU serves.
absl::StatusOr<GpuChoice> ChooseGpu(const DeviceChoice& choice, const GpuAccess& gpus);

struct ChosenBackend {
  std::unique_ptr<Backend> backend;
  std::vector<std::string> warnings;
  std::vector<KernelInfo> kernels;  // the kernels of a GPU
};

// Makes the backend for `choice`. `free_memory` is passed to MakeCpuBackend. Returns
// FailedPrecondition for an order of attention that the device does not have.
absl::StatusOr<ChosenBackend> MakeBackend(const DeviceChoice& choice, const CpuOptions& cpu,
                                          const CudaOptions& cuda,
                                          const AttentionOptions& attention,
                                          std::function<int64_t()> free_memory = {});
// Returns an error that names the option, unless a GPU can serve `attention`.
absl::Status CheckGpuAttention(const AttentionOptions& attention, int gpu);

}  // namespace sluice
