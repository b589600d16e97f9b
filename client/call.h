// What all calls have in common.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "absl/status/status.h"

namespace sluice::client {

// From now; 0: none.
void SetDeadline(int64_t deadline_us, grpc::ClientContext* context);

// Code by code.
absl::Status ToStatus(const grpc::Status& status);

}  // namespace sluice::client
