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

// By name, [n, length, width] each; rows behind a sequence's end are not looked at:
//   logits          of every position
//   state_0         of the residual stream behind the embedding
//   state_K         behind layer K, counted from 1
//   final           behind the last norm
//   module:NAME     the output of the module whose tensor NAME.weight is
struct Golden {
  std::vector<std::vector<int32_t>> sequences;
  std::map<std::string, Array> outputs;
};

// `arrays` has input_ids [n, length], may have input_lengths [n], and one output at least.
// InvalidArgument names the array and what is wrong with it.
absl::StatusOr<Golden> ParseGolden(std::map<std::string, Array> arrays, const ModelConfig& config);

}  // namespace sluice::verify
