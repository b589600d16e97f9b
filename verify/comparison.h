// Runs a model on the CPU, op by op, and compares what its ops give with a golden.
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

// Where an output is farthest from what was expected. The error of a value is |got - want| /
// max(|want|, root of the mean square of all that was wanted of the output), so that what is near
// zero among larger values is not judged by itself; infinite for a value that is not finite.
struct Worst {
  std::string name;  // as in the golden
  int32_t layer;     // -1: before the first; the number of layers: behind the last
  double error = 0;
  int64_t sequence = 0, position = 0, feature = 0;
  double got = 0, want = 0;
  bool of_sequence = false;  // the output is of a whole sequence; `position` is 0
};

struct Comparison {
  std::vector<Worst> outputs;        // in the order in which the model computes them
  std::vector<std::string> unknown;  // names in the golden that nothing here belongs to
  // The outputs of the model's heads, "logits" or "scores", that the golden lacks, so that nothing
  // is known of the weights of these heads.
  std::vector<std::string> unproven;

  // The first whose error is above the tolerance; nullptr: none.
  const Worst* FirstAbove(double tolerance) const;
};

// Each sequence is computed alone. InvalidArgument names an output whose width is another than the
// model's, or what of the model cannot be run so; other errors are those of loading.
absl::StatusOr<Comparison> Compare(std::shared_ptr<const Model> model, const Golden& golden,
                                   const CpuOptions& options);

}  // namespace sluice::verify
