// A minimal HTTP GET, for the metrics page.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::client {

// Returns the body of http://`address``path`, at most 16 MiB; `address` is HOST:PORT. Returns
// Unavailable if the server does not answer within `timeout`, and FailedPrecondition for a status
// other than 200.
absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path,
                                    absl::Duration timeout);

// Returns the body of a complete HTTP/1 response without transfer coding.
absl::StatusOr<std::string> HttpBody(const std::string& response);

}  // namespace sluice::client
