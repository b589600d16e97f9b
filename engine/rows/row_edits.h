// A row's edits to its logits. They are updated while the row generates.
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
  // Returns whether the request edits logits, including min_tokens.
  static bool Wanted(const RequestSpec& spec);

  // `spec` must outlive it. Reserves memory for `max_generated` tokens, so that Keep does not
  // allocate.
  RowEdits(const RequestSpec& spec, std::span<const int32_t> prompt, int32_t max_generated);
  RowEdits(const RowEdits&) = delete;  // At returns views into it
  RowEdits& operator=(const RowEdits&) = delete;

  // Records that `token` was drawn and kept.
  void Keep(int32_t token);
  // Returns the edits for drawing the generated token `index`, or nullptr if there are none. Valid
  // until the next call.
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

// Returns whether the token ends a row: it is a stop token of the request, or the model's eos and
// eos is not ignored.
bool Ends(const RequestSpec& spec, int32_t token);

}  // namespace sluice
