// Sparse embeddings of masked language models: SPLADE (arXiv 2109.10086).
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

}  // namespace sluice
