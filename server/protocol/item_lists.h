// The inputs that name tokens row by row: candidates to score, and excluded tokens.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/config.h"
#include "engine/request.h"
#include "server/protocol/inputs.h"

namespace sluice {

inline constexpr int64_t kMaxCandidates = 4096;  // of a row
inline constexpr int64_t kMaxExcluded = 4096;    // likewise

// Fills the request's `candidates` and `excluded`; -1 is left out of the excluded tokens, and a
// token that appears twice is there once. Returns InvalidArgument ("input") that names the element,
// or the row for which exclusions leave too little: no token to draw, or fewer than spec.num_top.
absl::Status ReadItemLists(const InputTensors& inputs, int64_t rows, const ModelConfig& config,
                           const RequestSpec& spec, Request* request);

}  // namespace sluice
