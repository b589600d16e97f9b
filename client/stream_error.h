// Errors inside a stream of ModelStreamInfer.
#pragma once

#include "absl/status/status.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// OK for a response without an error_message; else with the code that the parameter "error_code"
// names, Unknown where the server names none.
absl::Status StreamError(const inference::ModelStreamInferResponse& response);

}  // namespace sluice::client
