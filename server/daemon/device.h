// Which backend serves, as the option `device` asks.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/device_options.h"
#include "engine/options.h"

namespace sluice {

// The index of the GPU that serves; nullopt: the CPU does. `count_gpus` is as CountGpus
// (engine/cuda/gpus.h), and is asked only where the answer matters. FailedPrecondition when a GPU
// is asked for that this process cannot use; says why.
absl::StatusOr<std::optional<int>> ChooseGpu(
    const DeviceChoice& choice, const std::function<absl::StatusOr<int>()>& count_gpus);

// The backend that serves.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const DeviceChoice& choice,
                                                     const CpuOptions& cpu,
                                                     const CudaOptions& cuda);

}  // namespace sluice
