// Runs a model on the CPU op by op and compares the outputs with a golden.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "verify/golden.h"

namespace sluice::verify {

// The largest error of an output. The error of a value is |got - want| / max(|want|, root mean
// square of all expected values of the output), so that a value near zero among larger ones is not
// measured by itself. It is infinite if a value is not finite and the two differ.
struct Worst {
  std::string name;  // the name in the golden
  int32_t layer;     // -1 before the first layer; the number of layers after the last
  double error = 0;
  int64_t sequence = 0, position = 0, feature = 0;
  double got = 0, want = 0;
  bool of_sequence = false;  // whether the output is of a whole sequence; then `position` is 0
};

struct Comparison {
  std::vector<Worst> outputs;        // in the order in which the model computes them
  std::vector<std::string> unknown;  // names in the golden that this model does not have
  // The outputs, "logits" or "embedding", that the golden lacks beside what the model answers with.
  // The weights behind them are not verified.
  std::vector<std::string> unproven;
  // The output that the model answers with ("scores", "token_scores", "embedding" or "logits") if
  // the golden lacks it, else empty. Nothing is verified without it.
  std::string missing_answer;

  // Returns the first output whose error is above the tolerance, or nullptr if there is none.
  const Worst* FirstAbove(double tolerance) const;
  // Returns whether what the model answers with was compared, and no error is above the tolerance.
  bool Same(double tolerance) const;
};

// Computes each sequence alone. Returns InvalidArgument that names an output whose width differs
// from the model's, or says why the model cannot be run this way; other errors come from loading.
absl::StatusOr<Comparison> Compare(std::shared_ptr<const Model> model, const Golden& golden,
                                   const CpuOptions& options);

}  // namespace sluice::verify
