// What a model computed elsewhere, to be compared with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "verify/npz.h"

namespace sluice::verify {

// Outputs of every position are [n, length, width]; rows behind a sequence's end are not compared:
//   logits          the logits
//   state_0         the residual stream behind the embedding
//   state_K         the residual stream behind layer K, counted from 1
//   final           the state behind the last norm
//   module:NAME     the output of the module that has the tensor NAME.weight
// Outputs of a whole sequence are [n, width]:
//   scores          the classifier's scores, before any softmax or sigmoid
//   module:NAME     the output of the classifier's last layer or of its pooler's, before tanh
struct Golden {
  std::vector<std::vector<int32_t>> sequences;
  std::map<std::string, Array> outputs;           // [n, length, width]
  std::map<std::string, Array> sequence_outputs;  // [n, width]
};

// Requires of `arrays` input_ids [n, length] and one output at least; input_lengths [n] is
// optional. InvalidArgument names the array and what is wrong with it.
absl::StatusOr<Golden> ParseGolden(std::map<std::string, Array> arrays, const ModelConfig& config);

}  // namespace sluice::verify
