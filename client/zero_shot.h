// Zero-shot classification by a model of natural language inference: the model decides whether a
// text entails a hypothesis about each candidate label.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/arguments.h"
#include "client/connection.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Returns InvalidArgument, with the flag's name, for labels or a hypothesis that cannot be used.
absl::Status CheckZeroShot(const ZeroShotArguments& arguments);

struct LabelScore {
  std::string label;
  double score;
};

// Returns the labels of each text, the highest score first. Returns FailedPrecondition for a model
// without a label whose name begins with "entail".
absl::StatusOr<std::vector<std::vector<LabelScore>>> ZeroShot(
    const Connection& connection, const inference::ModelInferRequest& request,
    const ZeroShotArguments& arguments, const std::vector<std::string>& texts);

}  // namespace sluice::client
