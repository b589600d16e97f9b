// The choice of the backend, by the option `device`.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/device_options.h"
#include "engine/options.h"

namespace sluice {

// Returns the index of the GPU to use, or nullopt for the CPU. `count_gpus` has the contract of
// CountGpus (engine/cuda/gpus.h) and is called only where its result matters. Returns
// FailedPrecondition, with the reason, if `choice` demands a GPU that this process cannot use.
absl::StatusOr<std::optional<int>> ChooseGpu(
    const DeviceChoice& choice, const std::function<absl::StatusOr<int>()>& count_gpus);

// Makes the backend that `choice` asks for.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const DeviceChoice& choice,
                                                     const CpuOptions& cpu,
                                                     const CudaOptions& cuda);

}  // namespace sluice
