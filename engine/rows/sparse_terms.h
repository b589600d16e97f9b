// Sparse embeddings: of masked language models, SPLADE (arXiv 2109.10086), and of the weights of a
// row's own tokens.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

// Computes the weight of each term from its largest logit over all positions,
//   w = log(1 + max(logit, 0)), `logarithms` times
// and writes the terms with a weight above 0, the heaviest first (if equal, the lowest id first),
// at most `ids.size()` terms. Returns their number. `weights` is as long as `ids`.
int32_t TakeHeaviestTerms(std::span<const float> peaks, int logarithms, std::span<int32_t> ids,
                          std::span<float> weights);

// Writes the ids of a row's tokens in the same way, with their weights. An id that occurs several
// times has its largest weight. Ids of `without_weight`, which are ascending, are left out.
int32_t TakeHeaviestTokens(std::span<const int32_t> tokens, std::span<const float> of_tokens,
                           std::span<const int32_t> without_weight, std::span<int32_t> ids,
                           std::span<float> weights);

}  // namespace sluice
