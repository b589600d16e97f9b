// The CPU as a Backend: packed weights, one pool of compute threads, exact row counts.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/options.h"

namespace sluice {

// Starts the compute threads; they end with the backend. InvalidArgument for options out of range
// or an unknown profile, FailedPrecondition for a profile that this machine cannot execute.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);

}  // namespace sluice
