// An upper bound on the size of a reply, known before the request runs.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "server/protocol/tensors/outputs.h"

namespace sluice {

// Returns the most bytes of the reply with `outputs` to `rows` rows. `request` has its candidates;
// `longest` is the length of the longest prompt in tokens or, with windows, of the longest text.
// Returns InvalidArgument if the bound exceeds `limit`.
absl::StatusOr<int64_t> BoundReply(const RequestSpec& spec, const Request& request,
                                   const std::vector<Output>& outputs, int64_t rows,
                                   int32_t longest, int64_t limit);

}  // namespace sluice
