// The edits of a row to its logits, kept up to date while it generates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/request.h"

namespace sluice {

class RowEdits {
 public:
  // Returns whether the request edits logits at all; min_tokens counts as an edit.
  static bool Wanted(const Request& request);

  // `request` outlives it. Memory for `max_generated` tokens is reserved, so that Keep allocates
  // nothing for these.
  RowEdits(const Request& request, std::span<const int32_t> prompt, int32_t max_generated);
  // Not copied, since At returns views into it.
  RowEdits(const RowEdits&) = delete;
  RowEdits& operator=(const RowEdits&) = delete;

  // Records that the row goes on with `token`, which was drawn.
  void Keep(int32_t token);
  // Returns the edits for the draw of generated token `index`, or nullptr if there are none. Valid
  // until the next call.
  const kernels::LogitEdits* At(int32_t index);

 private:
  void See(int32_t token, int32_t generated);

  const Request& request_;
  // The tokens that have a penalty, and their indices in `seen_`.
  std::vector<kernels::SeenToken> seen_;
  absl::flat_hash_map<int32_t, int32_t> places_;
  std::vector<int32_t> ending_;  // distinct tokens that end the row; empty without min_tokens
  kernels::LogitEdits edits_;
};

// Returns whether `token` ends a row: the model's eos unless it is ignored, or one of the
// request's.
bool Ends(const Request& request, int32_t token);

}  // namespace sluice
