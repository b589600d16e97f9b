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
  // Returns the memory of draws after one more drafted token, without the seen tokens.
  static int64_t DrawBytes();

  // Returns whether the request edits logits, including min_tokens.
  static bool Wanted(const RequestSpec& spec);

  // `spec` must outlive it. Reserves memory for `max_generated` tokens and for draws after up to
  // `max_drafted` drafted tokens, so that Keep and At do not allocate.
  RowEdits(const RequestSpec& spec, std::span<const int32_t> prompt, int32_t max_generated,
           int32_t max_drafted = 0);
  RowEdits(const RowEdits&) = delete;  // At returns views into it
  RowEdits& operator=(const RowEdits&) = delete;

  // Records that `token` was drawn and kept.
  void Keep(int32_t token);
  // Returns the edits for drawing the generated token `index` after the kept tokens and the
  // `drafted` tokens, which count as generated, or nullptr if there are none. Valid until the next
  // Keep, and the next call with the same number of drafted tokens.
  const kernels::LogitEdits* At(int32_t index, std::span<const int32_t> drafted = {});

 private:
  // The edits of a draw after drafted tokens.
  struct Draw {
    std::vector<kernels::SeenToken> seen;  // empty without drafted tokens
    kernels::LogitEdits edits;
  };

  void See(int32_t token, int32_t generated);
  std::span<const kernels::SeenToken> SeenAfter(std::span<const int32_t> drafted, Draw* draw) const;

  const RequestSpec& spec_;
  // The tokens that have a penalty, and their indices in `seen_`.
  std::vector<kernels::SeenToken> seen_;
  absl::flat_hash_map<int32_t, int32_t> places_;
  std::vector<int32_t> ending_;  // distinct tokens that end the row; empty without min_tokens
  std::vector<Draw> draws_;      // by number of drafted tokens
};

// Returns whether the token ends a row: it is a stop token of the request, or the model's eos and
// eos is not ignored.
bool Ends(const RequestSpec& spec, int32_t token);

}  // namespace sluice
