// The positions of a request's tokens that outputs are computed from.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "server/protocol/tensors/inputs.h"

namespace sluice {

// Returns the positions of each row that have a vector, by the model's rules of the task. Requires
// that `spec` has a model with vectors and the lengths of the rows, and `request` its tokens.
RowLists VectorPositions(const RequestSpec& spec, const Request& request);

// Returns whether spans refer to texts, so that the places of tokens in texts are needed.
bool NeedsPlaces(const RequestSpec& spec);

// The texts of a request: its inputs, and the bytes of each token of all rows if NeedsPlaces.
struct SpanTexts {
  const InputTensors& inputs;
  std::vector<ByteRange> ranges;
};

// Returns the first positions and the positions after the last ones of each row's spans. `lengths`
// has the tokens of the rows. Returns InvalidArgument ("parameter") for lists that do not fit the
// rows, for a span outside its text or row, and for a span without tokens.
absl::StatusOr<RowLists> SpanPositions(const RequestSpec& spec, const std::vector<int32_t>& lengths,
                                       const SpanTexts& texts);

// Returns the number of values of each row.
std::vector<int32_t> SizesOf(const RowLists& lists);

}  // namespace sluice
