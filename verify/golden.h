// The outputs that a model computed elsewhere, for comparison.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "verify/npz.h"

namespace sluice::verify {

// Outputs of every position are [n, length, width]; rows after a sequence's end are not compared:
//   logits          the logits
//   token_scores    the scores of a classifier of tokens, before any softmax
//   token_embeddings   the answer of a multi-vector model
//   state_0         the residual stream after the embedding
//   state_K         the residual stream after layer K, counted from 1
//   final           the state after the last norm
//   module:NAME     the output of the module that has the tensor NAME.weight
// Outputs of a whole sequence are [n, width]:
//   scores          the classifier's scores, before any softmax or sigmoid
//   embedding       the pooled states after dense layers and normalisation, if there are any
//   module:NAME     the output of the classifier's last layer, or of its pooler before tanh
struct Golden {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<std::vector<int32_t>> types;        // of each token; empty if all are of type 0
  std::map<std::string, Array> outputs;           // [n, length, width]
  std::map<std::string, Array> sequence_outputs;  // [n, width]
};

// Requires that `arrays` has input_ids [n, length] and at least one output; input_lengths [n] and
// token_type_ids [n, length] are optional. Returns InvalidArgument that names the array and the
// problem.
absl::StatusOr<Golden> ParseGolden(std::map<std::string, Array> arrays, const ModelConfig& config);

}  // namespace sluice::verify
