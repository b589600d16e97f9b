// A gRPC server that does no work in a call. The daemon's overhead is compared with it.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice::loadtest {

// Serves ModelInfer through the raw callback API on `address` until SIGTERM. Each answer has
// `response_bytes` bytes.
absl::Status ServeBare(const std::string& address, int response_bytes);

}  // namespace sluice::loadtest
