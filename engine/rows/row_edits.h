// The edits of a row to its logits, kept up to date while it generates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/request.h"
#include "kernels/sampling.h"

namespace sluice {

class RowEdits {
 public:
  // Returns whether the request edits logits at all, min_tokens included.
  static bool Wanted(const RequestSpec& spec);

  // `spec` outlives it. Memory for `max_generated` tokens is reserved, so that Keep allocates
  // nothing for these.
  RowEdits(const RequestSpec& spec, std::span<const int32_t> prompt, int32_t max_generated);
  RowEdits(const RowEdits&) = delete;  // At returns views into it
  RowEdits& operator=(const RowEdits&) = delete;

  // Records that the row goes on with `token`, which was drawn.
  void Keep(int32_t token);
  // Returns the edits for the draw of generated token `index`, valid until the next call; nullptr
  // if there are none.
  const kernels::LogitEdits* At(int32_t index);

 private:
  void See(int32_t token, int32_t generated);

  const RequestSpec& spec_;
  // The tokens that have a penalty, and their indices in `seen_`.
  std::vector<kernels::SeenToken> seen_;
  absl::flat_hash_map<int32_t, int32_t> places_;
  std::vector<int32_t> ending_;  // distinct tokens that end the row; empty without min_tokens
  kernels::LogitEdits edits_;
};

// Returns whether the token ends a row: one of the request's, or the model's eos unless it is
// ignored.
bool Ends(const RequestSpec& spec, int32_t token);

}  // namespace sluice
