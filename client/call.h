// Options and status conversion that all calls share.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice::client {

struct CallOptions {
  int64_t deadline_us = 0;  // from the start of each call; 0 means none
  std::string token;        // empty means none
};

void Prepare(const CallOptions& options, grpc::ClientContext* context);

// Converts the status of the ended call of `context` to the one with the same code and message. The
// reason that the server sent (base/reason.h) is attached.
absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace sluice::client
