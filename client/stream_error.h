// Reads the errors of calls, and errors inside a stream of ModelStreamInfer.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Returns an error with the code, and with the reason (base/reason.h) if `reason` names one of this
// code.
absl::Status ReceivedError(absl::StatusCode code, std::string_view reason,
                           const std::string& message);

// Returns whether the server sent the reason of a received error.
bool HasReason(const absl::Status& error);

// Returns OK for a response without an error_message, and otherwise an error with the code in the
// parameter "error_code", or Unknown if the server sent no code. The reason is in "error_reason".
absl::Status StreamError(const inference::ModelStreamInferResponse& response);

}  // namespace sluice::client
