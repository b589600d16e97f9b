#include "engine/rows/sparse_terms.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace sluice {

int32_t TakeHeaviestTerms(std::span<const float> peaks, int logarithms, std::span<int32_t> ids,
                          std::span<float> weights) {
  std::vector<int32_t> terms;
  for (int32_t id = 0; id < std::ssize(peaks); ++id) {
    if (peaks[id] > 0) terms.push_back(id);
  }
  const auto count = std::min(std::ssize(terms), std::ssize(ids));
  const auto heavier = [&](int32_t a, int32_t b) {
    return peaks[a] != peaks[b] ? peaks[a] > peaks[b] : a < b;
  };
  std::partial_sort(terms.begin(), terms.begin() + count, terms.end(), heavier);
  for (int64_t i = 0; i < count; ++i) {
    double weight = peaks[terms[i]];
    for (int n = 0; n < logarithms; ++n) weight = std::log1p(weight);
    ids[i] = terms[i];
    weights[i] = static_cast<float>(weight);
  }
  return static_cast<int32_t>(count);
}

int32_t TakeHeaviestTokens(std::span<const int32_t> tokens, std::span<const float> of_tokens,
                           std::span<const int32_t> without_weight, std::span<int32_t> ids,
                           std::span<float> weights) {
  struct Term {
    int32_t id;
    float weight;
  };
  std::vector<Term> terms;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (of_tokens[i] <= 0 || std::ranges::binary_search(without_weight, tokens[i])) continue;
    terms.push_back({tokens[i], of_tokens[i]});
  }
  std::ranges::sort(terms, [](const Term& a, const Term& b) {
    return a.id != b.id ? a.id < b.id : a.weight > b.weight;
  });
  terms.erase(std::ranges::unique(terms, {}, &Term::id).begin(), terms.end());
  std::ranges::stable_sort(terms, std::greater(), &Term::weight);
  const auto count = std::min(std::ssize(terms), std::ssize(ids));
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = terms[i].id;
    weights[i] = terms[i].weight;
  }
  return static_cast<int32_t>(count);
}

}  // namespace sluice
