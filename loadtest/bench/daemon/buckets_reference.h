// Compares answers of a daemon with the reference implementation of its model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "engine/model/model.h"

namespace sluice::loadtest {

struct ReferenceError {
  int values = 0;       // log-probabilities compared
  double absolute = 0;  // the largest |answer - reference|
  double relative = 0;  // the largest |answer - reference| / max(1, |reference|)
};

// Sends random prompts of these lengths. Compares the log-probabilities of the prompts and of the
// next token with the same model computed in double. Returns the errors of the calls, and
// InvalidArgument if an answer lacks an output.
absl::StatusOr<ReferenceError> CompareWithReference(const client::Connection& connection,
                                                    const Model& model,
                                                    const std::vector<int32_t>& lengths,
                                                    uint64_t seed);

}  // namespace sluice::loadtest
