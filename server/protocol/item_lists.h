// The inputs that name tokens row by row: candidates to score, and tokens that do not exist.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/request.h"
#include "server/protocol/inputs.h"
#include "server/protocol/parameters.h"

namespace sluice {

inline constexpr int64_t kMaxCandidates = 4096;  // of a row
inline constexpr int64_t kMaxExcluded = 4096;    // likewise

// To the request's `candidates` and `excluded`; of those, -1 is left out and what appears twice is there
// once. InvalidArgument ("input") names the element, or the row that exclusions leave nothing to choose
// from: a token to draw, or as many as its num_top.
absl::Status ReadItemLists(const InputTensors& inputs, int64_t rows, const Parameters& parameters,
                           Request* request);

}  // namespace sluice
