// Validates messages to the model of TextModel(), for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/protocol/request/validate.h"
#include "tests/server/protocol/messages.h"

namespace sluice::testing {

inline constexpr RequestLimits kSmallLimits = {.max_rows = 4, .max_reply_bytes = 1 << 16};

inline absl::StatusOr<ValidRequest> Validated(const inference::ModelInferRequest& message,
                                              CallContext call = {}) {
  call.model = TextModel();
  return Validate(message, kSmallLimits, std::move(call));
}

// Returns the message of an error, which must be InvalidArgument.
inline std::string InvalidArgument(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// Returns the message of the error, which must be InvalidArgument, of a message to that model.
inline std::string ErrorOf(const inference::ModelInferRequest& message) {
  return InvalidArgument(Validated(message).status());
}

}  // namespace sluice::testing
