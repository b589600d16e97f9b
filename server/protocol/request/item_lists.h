// The inputs that list tokens for each row: candidates to score, and excluded tokens.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/config.h"
#include "engine/request.h"
#include "server/protocol/tensors/inputs.h"

namespace sluice {

inline constexpr int64_t kMaxCandidates = 4096;  // per row
inline constexpr int64_t kMaxExcluded = 4096;    // per row

// Fills the `candidates` and `excluded` tokens of the request. An excluded token of -1 is padding,
// and repeated tokens are kept once. Returns InvalidArgument ("input") that names the element, or
// the row if its exclusions leave no token to draw or fewer than spec.num_top.
absl::Status ReadItemLists(const InputTensors& inputs, int64_t rows, const ModelConfig& config,
                           const RequestSpec& spec, Request* request);

}  // namespace sluice
