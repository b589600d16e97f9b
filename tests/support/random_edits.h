// Random logit edits for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/sampling.h"

namespace sluice::kernels {

enum EditKind : unsigned {
  kRepetition = 1,
  kPresence = 2,
  kFrequency = 4,
  kBias = 8,
  kBanned = 16,
  kAllowed = 32,
  kAllEditKinds = 64
};

// The memory that LogitEdits points to.
struct OwnedEdits {
  std::vector<SeenToken> seen;
  std::vector<TokenBias> bias;
  std::vector<int32_t> banned, allowed;
  float repetition = 1, presence = 0, frequency = 0;

  LogitEdits view() const {
    return {.seen = seen,
            .repetition = repetition,
            .presence = presence,
            .frequency = frequency,
            .bias = bias,
            .banned = banned,
            .allowed = allowed};
  }
};

// Returns `count` distinct tokens of n, ascending.
inline std::vector<int32_t> DistinctTokens(std::mt19937_64& random, int64_t n, int64_t count) {
  std::vector<int32_t> all(static_cast<size_t>(n)), tokens;
  std::iota(all.begin(), all.end(), 0);
  std::sample(all.begin(), all.end(), std::back_inserter(tokens), count, random);
  return tokens;
}

// Returns edits of the kinds in the mask. With `exact`, floats hold the edited logits without
// rounding, so that ties are the same as in the references. Token `spared` is not banned and is in
// `allowed`.
inline OwnedEdits RandomEdits(std::mt19937_64& random, int64_t n, unsigned kinds, bool exact,
                              int32_t spared) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto amount = [&](float scale) {
    const float x = std::uniform_real_distribution<float>(-scale, scale)(random);
    return exact ? std::round(x * 2) / 2 : x;
  };
  OwnedEdits edits;
  for (int32_t token : DistinctTokens(random, n, between(0, n))) {
    edits.seen.push_back({token, static_cast<int32_t>(between(0, 3))});
  }
  std::shuffle(edits.seen.begin(), edits.seen.end(), random);
  if (kinds & kRepetition) {
    edits.repetition = exact ? std::exp2(std::round(amount(2))) : std::exp(amount(1));
  }
  if (kinds & kPresence) edits.presence = amount(2);
  if (kinds & kFrequency) edits.frequency = amount(2);
  if (kinds & kBias) {
    for (int32_t token : DistinctTokens(random, n, between(1, n))) {
      const bool ban = token != spared && random() % 5 == 0;
      edits.bias.push_back({token, ban ? -infinity : amount(3)});
    }
  }
  if (kinds & kBanned) edits.banned = DistinctTokens(random, n, between(1, n));
  std::erase(edits.banned, spared);
  if (kinds & kAllowed) {
    edits.allowed = DistinctTokens(random, n, between(1, n));
    if (!std::binary_search(edits.allowed.begin(), edits.allowed.end(), spared)) {
      edits.allowed.push_back(spared);
      std::sort(edits.allowed.begin(), edits.allowed.end());
    }
  }
  return edits;
}

}  // namespace sluice::kernels
