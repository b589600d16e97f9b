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

// The largest error of an output. The error of a value is |got - expected| / max(|expected|, root
// mean square of all expected values of the output). So a value near zero among larger ones is
// measured relative to the larger ones. The error is infinite if a value is not finite and the two
// differ.
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
  // The outputs, "logits" or "embedding", that the golden lacks, other than the answer. The weights
  // that only these outputs depend on are not verified.
  std::vector<std::string> unproven;
  // The output that is the model's answer ("scores", "token_scores", "embedding" or "logits") if
  // the golden lacks it, otherwise empty. Without it nothing is verified.
  std::string missing_answer;

  // Returns the first output whose error is above the tolerance, or nullptr if there is none.
  const Worst* FirstAbove(double tolerance) const;
  // Returns whether the model's answer was compared, and no error is above the tolerance.
  bool Same(double tolerance) const;
};

// Computes each sequence separately. Returns InvalidArgument with the name of an output whose width
// differs from the model's, or with the reason why the model cannot be run this way. Other errors
// come from loading.
absl::StatusOr<Comparison> Compare(std::shared_ptr<const Model> model, const Golden& golden,
                                   const CpuOptions& options);

}  // namespace sluice::verify
