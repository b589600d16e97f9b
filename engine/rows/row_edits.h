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

  // `request` outlives it. Room for `max_generated` tokens is reserved; Keep allocates nothing for
  // these.
  RowEdits(const Request& request, std::span<const int32_t> prompt, int32_t max_generated);
  // At's views are into it.
  RowEdits(const RowEdits&) = delete;
  RowEdits& operator=(const RowEdits&) = delete;

  // The row goes on with `token`, which was drawn.
  void Keep(int32_t token);
  // For the draw of generated token `index`; nullptr when it edits nothing. Valid until the next call.
  const kernels::LogitEdits* At(int32_t index);

 private:
  void See(int32_t token, int32_t generated);

  const Request& request_;
  // Tokens that have a penalty, and where they are in `seen_`.
  std::vector<kernels::SeenToken> seen_;
  absl::flat_hash_map<int32_t, int32_t> places_;
  std::vector<int32_t> ending_;  // tokens that end the row, distinct; empty without min_tokens
  kernels::LogitEdits edits_;
};

// Tokens that end a row: the model's eos unless ignored, and the request's.
bool Ends(const Request& request, int32_t token);

}  // namespace sluice
