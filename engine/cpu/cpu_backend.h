// The backend of the CPU: packed weights, one pool of compute threads, exact row counts.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/options.h"

namespace sluice {

// Starts the compute threads, which end with the backend. Returns InvalidArgument for options out
// of range, an unknown profile or a damaged file of the device, and FailedPrecondition for a
// profile that this machine cannot execute.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options,
                                                        const AttentionOptions& attention = {});

}  // namespace sluice
