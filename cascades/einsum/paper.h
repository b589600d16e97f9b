// Attention as FuseMax (arXiv 2406.10491) writes it, in three passes over the keys, in two and in
// one, for one head without a mask. All compute Y = softmax(Q K^T) V. The one pass begins with a
// maximum of -inf, which needs a key in the first chunk: without a mask there is one.
#pragma once

#include <span>
#include <string_view>

namespace sluice::einsum {

struct PaperCascade {
  std::string_view name;
  int passes;  // over the context
  std::string_view text;
};

// Returns attention_three_pass, attention_deferred_division, attention_two_pass and
// attention_one_pass.
std::span<const PaperCascade> PaperCascades();

}  // namespace sluice::einsum
