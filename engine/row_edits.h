// A row's edits to its logits, kept up to date as it generates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/request.h"

namespace sluice {

class RowEdits {
 public:
  // Does the request edit logits at all (min_tokens included)?
  static bool Wanted(const Request& request);

  // `request` outlives it. Room for `max_generated` tokens is reserved; Keep allocates nothing.
  RowEdits(const Request& request, std::span<const int32_t> prompt, int32_t max_generated);

  void Keep(int32_t token);
  // For the draw of generated token `index`; valid until the next call.
  const kernels::LogitEdits* At(int32_t index);
};

// Tokens that end a row: the model's eos unless ignored, and the request's.
bool Ends(const Request& request, int32_t token);

}  // namespace sluice
