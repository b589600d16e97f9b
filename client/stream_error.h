// Reads errors inside a stream of ModelStreamInfer.
#pragma once

#include "absl/status/status.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Returns OK for a response without an error_message, and otherwise an error with the code in the
// parameter "error_code", or Unknown if the server sent no code.
absl::Status StreamError(const inference::ModelStreamInferResponse& response);

}  // namespace sluice::client
