// The yardstick of the daemon's own overhead: a gRPC server that does nothing with a call.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice::loadtest {

// Serves ModelInfer through the raw callback API on `address`, answering `response_bytes` bytes,
// until SIGTERM.
absl::Status ServeBare(const std::string& address, int response_bytes);

}  // namespace sluice::loadtest
