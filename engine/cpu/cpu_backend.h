// The backend of the CPU: packed weights, one pool of compute threads, exact row counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/options.h"

namespace sluice {

// Starts the compute threads, which end with the backend. `free_memory` returns the bytes that
// models may still take. Without it only the system limits them, and KV pages take a quarter
// instead of half of the free memory, because other parts of the process need room too. Returns
// InvalidArgument for options out of range or an unknown profile, and FailedPrecondition for a
// profile that this machine cannot execute.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options,
                                                        const AttentionOptions& attention = {},
                                                        std::function<int64_t()> free_memory = {});

}  // namespace sluice
