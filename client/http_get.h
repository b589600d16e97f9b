// A minimal HTTP GET, for the metrics page.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::client {

// The body of http://`address``path` (address: HOST:PORT), at most 16 MiB. Unavailable when nothing
// answers within `timeout`, FailedPrecondition on a status other than 200.
absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path,
                                    absl::Duration timeout);

// The body of a whole HTTP/1 response without transfer coding.
absl::StatusOr<std::string> HttpBody(const std::string& response);

}  // namespace sluice::client
