#include "kernels/reference/sample.h"

#include "kernels/philox.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace sluice::kernels::reference {

std::vector<int32_t> TopK(std::span<const double> x, int64_t k) {
  std::vector<int32_t> ids(x.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    if (std::isnan(x[a]) || std::isnan(x[b])) return !std::isnan(x[a]) && std::isnan(x[b]);
    return x[a] > x[b];
  });
  ids.resize(k);
  return ids;
}

std::vector<double> Edit(std::span<const double> logits, const LogitEdits& edits) {
  constexpr double kBanned = -std::numeric_limits<double>::infinity();
  std::vector<double> x(logits.begin(), logits.end());
  for (const SeenToken& seen : edits.seen) {
    double& logit = x[seen.token];
    logit = logit > 0 ? logit / edits.repetition : logit * edits.repetition;
    if (seen.generated > 0) logit -= edits.presence + double{edits.frequency} * seen.generated;
  }
  for (const TokenBias& bias : edits.bias) x[bias.token] += bias.bias;
  for (int32_t token : edits.banned) x[token] = kBanned;
  if (edits.allowed.empty()) return x;
  std::vector<double> masked(x.size(), kBanned);
  for (int32_t token : edits.allowed) masked[token] = x[token];
  return masked;
}

namespace {

void KeepTypical(double typical_p, Distribution* kept) {
  const std::vector<double>& weights = kept->weights;
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double entropy = 0;
  for (const double w : weights) {
    if (w > 0) entropy -= w / total * std::log(w / total);
  }
  const auto distance = [&](double w) { return std::abs(std::log(w / total) + entropy); };
  std::vector<double> ascending(weights);
  std::stable_sort(ascending.begin(), ascending.end(),
                   [&](double a, double b) { return distance(a) < distance(b); });
  double mass = 0, most = 0;
  for (size_t i = 0; i < ascending.size() && mass < typical_p * total; ++i) {
    mass += ascending[i];
    most = distance(ascending[i]);
  }
  Distribution typical;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (distance(weights[i]) > most) continue;
    typical.ids.push_back(kept->ids[i]);
    typical.weights.push_back(weights[i]);
  }
  *kept = std::move(typical);
}

}  // namespace

Distribution Filter(std::span<const double> logits, const SampleParams& params) {
  const int64_t n = std::ssize(logits);
  const bool top_k = params.top_k > 0 && params.top_k < n;
  const bool sorted = top_k || params.top_p < 1 || params.typical_p < 1;
  const std::vector<int32_t> order = TopK(logits, n);
  Distribution kept;
  const auto weight = [&](int32_t id) {
    return std::exp((logits[id] - logits[order[0]]) / params.temperature);
  };
  if (!sorted) {
    for (int32_t id = 0; id < n; ++id) {
      kept.ids.push_back(id);
      kept.weights.push_back(weight(id) < params.min_p ? 0 : weight(id));
    }
    return kept;
  }
  const int64_t k = top_k ? params.top_k : n;
  double total = 0, sum = 0;
  for (int64_t i = 0; i < k; ++i) total += weight(order[i]);
  for (int64_t i = 0; i < k; ++i) {
    const double w = weight(order[i]);
    const bool nucleus = params.top_p >= 1 || sum < params.top_p * total;
    if (i > 0 && (!nucleus || w < params.min_p)) break;
    kept.ids.push_back(order[i]);
    kept.weights.push_back(w);
    sum += w;
  }
  if (params.typical_p < 1) KeepTypical(params.typical_p, &kept);
  return kept;
}

double Uniform(const SampleParams& params) {
  const uint32_t counter[4] = {static_cast<uint32_t>(params.token_index),
                               static_cast<uint32_t>(params.token_index >> 32), params.sample, 0};
  uint32_t words[4];
  Philox(params.seed, counter, words);
  return std::ldexp(static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11), -53);
}

int32_t Sample(std::span<const double> logits, const SampleParams& params) {
  if (params.temperature == 0) return TopK(logits, 1)[0];
  const Distribution kept = Filter(logits, params);
  const double total = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
  const double target = Uniform(params) * total;
  double sum = 0;
  for (size_t i = 0; i < kept.ids.size(); ++i) {
    sum += kept.weights[i];
    if (sum > target) return kept.ids[i];
  }
  return kept.ids.back();
}

}  // namespace sluice::kernels::reference
