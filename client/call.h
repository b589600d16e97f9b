// What all calls have in common.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice::client {

struct CallOptions {
  int64_t deadline_us = 0;  // from the start of each call; 0: none
  std::string token;        // empty: none
};

void Prepare(const CallOptions& options, grpc::ClientContext* context);

// Code by code.
absl::Status ToStatus(const grpc::Status& status);

}  // namespace sluice::client
