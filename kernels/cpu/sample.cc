#include "kernels/cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/log_sum.h"
#include "kernels/cpu/logit_edits.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/simd/dispatch.h"
#include "kernels/philox.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kBlock = 1024;  // columns of one f32 sum; the sums of blocks are added in double

// A row, or the part of it that may be drawn, and its largest logit. All exponents are relative to
// the largest logit.
struct Logits {
  const simd::Table& table;
  const float* x;
  int64_t n;
  float largest;
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The weight of a token: exp((x - largest) / divisor), or 0 if that is below `floor`.
struct Weighting {
  float divisor = 1.0f;
  float floor = 0.0f;
};

float BlockWeight(const Logits& row, const Weighting& weighting, int64_t begin, float* weights) {
  return row.table.exp_sum(row.x + begin, std::min(kBlock, row.n - begin), row.largest,
                           weighting.divisor, weighting.floor, weights);
}

double TotalWeight(const Logits& row, const Weighting& weighting) {
  double total = 0;
  for (int64_t b = 0; b < row.n; b += kBlock) total += BlockWeight(row, weighting, b, nullptr);
  return total;
}

double Uniform(const SampleParams& params) {
  const uint32_t counter[4] = {static_cast<uint32_t>(params.token_index),
                               static_cast<uint32_t>(params.token_index >> 32), params.sample, 0};
  uint32_t words[4];
  Philox(params.seed, counter, words);
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

// Returns the first index where the running sum, starting at *sum, exceeds `target`, or n if it
// never does. A token of weight 0 is never chosen. Sets *last to the last index of positive weight,
// if there is one.
int64_t Walk(const float* weights, int64_t n, double target, double* sum, int64_t* last) {
  for (int64_t i = 0; i < n; ++i) {
    if (weights[i] <= 0) continue;
    *last = i;
    *sum += weights[i];
    if (*sum > target) return i;
  }
  return n;
}

// Inverts the distribution over the whole row in index order.
int32_t DrawInIndexOrder(const Logits& row, const Weighting& weighting, double uniform) {
  const double target = uniform * TotalWeight(row, weighting);
  double before = 0;   // weight of the blocks passed
  int64_t chosen = 0;  // a block of positive weight
  double chosen_before = 0;
  for (int64_t b = 0; b < row.n; b += kBlock) {
    const double weight = BlockWeight(row, weighting, b, nullptr);
    if (weight > 0) {
      chosen = b;
      chosen_before = before;
      if (before + weight > target) break;
    }
    before += weight;
  }
  float weights[kBlock];
  BlockWeight(row, weighting, chosen, weights);
  const int64_t count = std::min(kBlock, row.n - chosen);
  int64_t last = 0;
  const int64_t i = Walk(weights, count, target, &chosen_before, &last);
  return static_cast<int32_t>(chosen + (i < count ? i : last));
}

// Space for `k` candidates of a row of `n`, from the caller's scratch.
struct Candidates {
  Candidates(uint64_t* scratch, int64_t k)
      : weights(reinterpret_cast<float*>(scratch)),
        ids(reinterpret_cast<int32_t*>(scratch) + k),
        keys(scratch + k) {}
  float* weights;  // [k]
  int32_t* ids;    // [k]
  uint64_t* keys;  // [TopKScratch(n, k)]
};

// A part of the candidates, and its weight.
struct Range {
  int64_t begin, end;
  double weight;
};

// Returns the candidates that typical_p keeps of [0, count). Their weights descend and add up to
// `total`. With m the mean of log w, weighted by w, the distance |log p + H| of a candidate is |log
// w - m|. So the candidates within a distance are neighbours.
Range Typical(const float* weights, int64_t count, double total, float typical_p) {
  double mean = 0;
  for (int64_t i = 0; i < count && weights[i] > 0; ++i) {
    mean += weights[i] / total * Log(double{weights[i]});
  }
  int64_t split = 0;
  while (split < count && Log(double{weights[split]}) >= mean) ++split;
  Range range = {split, split, 0};
  double last = 0;  // the distance of the latest candidate
  while (range.begin > 0 || range.end < count) {
    const double above = range.begin > 0 ? Log(double{weights[range.begin - 1]}) - mean
                                         : std::numeric_limits<double>::infinity();
    const double below = range.end < count ? mean - Log(double{weights[range.end]})
                                           : std::numeric_limits<double>::infinity();
    const double distance = std::min(above, below);
    if (range.weight >= typical_p * total && distance > last) break;
    range.weight += above <= below ? weights[--range.begin] : weights[range.end++];
    last = distance;
  }
  return range;
}

// Draws among the k most likely of n tokens, whose weights descend. Keeps the fewest of them that
// have top_p of `total` (of their own weight if total is 0), without tokens below min_p. Returns an
// index among them, or -1 if they do not have top_p of a given `total`.
int64_t DrawAmong(const float* weights, int64_t k, int64_t n, const SampleParams& params,
                  double total, double uniform) {
  if (total == 0) {
    for (int64_t i = 0; i < k; ++i) total += weights[i];
  }
  int64_t count = 0;
  double kept = 0;
  const bool cut = params.top_p < 1.0f;
  const double enough = params.top_p * total;
  while (count < k && (count == 0 || !cut || kept < enough)) {
    if (count > 0 && weights[count] < params.min_p) break;
    kept += weights[count++];
  }
  if (cut && count == k && kept < enough && k < n) return -1;
  Range range = {0, count, kept};
  if (params.typical_p < 1.0f) range = Typical(weights, count, kept, params.typical_p);
  double sum = 0;
  int64_t last = 0;
  const int64_t i =
      Walk(weights + range.begin, range.end - range.begin, uniform * range.weight, &sum, &last);
  return range.begin + (i < range.end - range.begin ? i : last);
}

float DivisorOf(const SampleParams& params) {
  return std::min(params.temperature, std::numeric_limits<float>::max());
}

// Returns whether the filter is on for a row of n tokens.
bool HasTopK(const SampleParams& params, int64_t n) { return params.top_k > 0 && params.top_k < n; }

// `top_k` is whether that filter is on.
int32_t DrawFromCandidates(Profile profile, const Logits& row, const SampleParams& params,
                           bool top_k, double uniform, uint64_t* scratch) {
  constexpr int64_t kFirst = 256, kGrowth = 8;
  // Without top_k, searches the nucleus in ever larger sets of candidates, finally in the whole
  // row.
  const Weighting weighting = {.divisor = DivisorOf(params)};
  const double total = top_k ? 0 : TotalWeight(row, weighting);
  const bool whole = params.typical_p < 1.0f && params.top_p >= 1.0f;  // to compute its entropy
  int64_t k = std::min<int64_t>(row.n, top_k ? params.top_k : whole ? row.n : kFirst);
  while (true) {
    const Candidates candidates(scratch, k);
    TopK(profile, row.x, row.n, k, candidates.weights, candidates.ids, candidates.keys);
    row.table.exp_sum(candidates.weights, k, row.largest, weighting.divisor, 0.0f,
                      candidates.weights);
    const int64_t i = DrawAmong(candidates.weights, k, row.n, params, total, uniform);
    if (i >= 0) return candidates.ids[i];
    k = std::min(row.n, k * kGrowth);
  }
}

// Draws from `row`, which has the tokens that may be drawn. `columns` is the size of the whole row;
// it decides whether top_k is on.
int32_t Draw(Profile profile, const Logits& row, int64_t columns, const SampleParams& params,
             uint64_t* scratch) {
  const double uniform = Uniform(params);
  const bool top_k = HasTopK(params, columns);
  if (top_k || params.top_p < 1.0f || params.typical_p < 1.0f) {
    return DrawFromCandidates(profile, row, params, top_k, uniform, scratch);
  }
  return DrawInIndexOrder(row, {.divisor = DivisorOf(params), .floor = params.min_p}, uniform);
}

double LogOfSum(const Logits& row) {
  LogSum sum(row.table, row.largest);
  for (int64_t b = 0; b < row.n; b += kSumColumns) {
    sum.Add(SumOfBlock(row.table, row.x + b, std::min(kSumColumns, row.n - b)));
  }
  return sum.log();
}

Logits Prepare(Profile profile, const float* x, int64_t n) {
  const simd::Table& table = simd::TableFor(profile);
  return {table, x, n, table.max(x, n)};
}

// Returns the index within `row` of the token that `params` choose; -1 if all are banned.
int32_t Choose(Profile profile, const Logits& row, int64_t columns, const SampleParams& params,
               uint64_t* scratch) {
  if (row.largest == -kInfinity) return -1;
  if (params.temperature > 0) return Draw(profile, row, columns, params, scratch);
  int32_t token;
  TopK(profile, row.x, row.n, 1, nullptr, &token, scratch);
  return token;
}

// Draws among the allowed tokens, whose logits are copied to `gathered` in ascending order of
// tokens, so that ties and draws in index order are the same as in the whole row.
int32_t ChooseAllowed(Profile profile, const SampleRow& row, const SampleParams& params,
                      float* gathered, uint64_t* scratch) {
  const std::span<const int32_t> allowed = row.edits->allowed;
  for (size_t i = 0; i < allowed.size(); ++i) gathered[i] = row.logits[allowed[i]];
  const Logits some = Prepare(profile, gathered, std::ssize(allowed));
  const int32_t place = Choose(profile, some, row.n, params, scratch);
  return place < 0 ? -1 : allowed[place];
}

// Restores the logits before it returns.
int32_t ChooseEdited(Profile profile, const SampleRow& row, const SampleParams& params,
                     uint64_t* scratch) {
  auto* const saved = reinterpret_cast<float*>(scratch);  // [n]
  float* const gathered = saved + row.n;                  // [n]
  scratch += row.n;
  int32_t token = -1;
  if (ApplyEdits(*row.edits, row.logits, saved)) {
    token = row.edits->allowed.empty()
                ? Choose(profile, Prepare(profile, row.logits, row.n), row.n, params, scratch)
                : ChooseAllowed(profile, row, params, gathered, scratch);
  }
  UndoEdits(*row.edits, saved, row.logits);
  return token;
}

}  // namespace

double LogSumExp(Profile profile, const float* x, int64_t n) {
  SLUICE_CHECK(n >= 1);
  return LogOfSum(Prepare(profile, x, n));
}

int64_t SampleScratch(int64_t n) { return 2 * n + TopKScratch(n, n); }

int64_t CandidatesToDraw(const SampleParams& params, int64_t n) {
  if (params.temperature == 0) return 1;
  return HasTopK(params, n) ? params.top_k : 0;
}

int64_t SampleCandidates(Profile profile, const SampleParams& params, const float* logits,
                         int64_t k, int64_t n, float* scratch) {
  SLUICE_CHECK(k > 0 && k == CandidatesToDraw(params, n));
  if (params.temperature == 0) return 0;
  simd::TableFor(profile).exp_sum(logits, k, logits[0], DivisorOf(params), 0.0f, scratch);
  return DrawAmong(scratch, k, n, params, 0, Uniform(params));
}

SampleResult Sample(Profile profile, const SampleParams& params, const SampleRow& row,
                    uint64_t* scratch) {
  constexpr SampleResult kNone = {-1, std::numeric_limits<float>::quiet_NaN()};
  SLUICE_CHECK(row.n >= 1 && row.num_top <= row.n);
  const Logits logits = Prepare(profile, row.logits, row.n);
  const double log_sum = LogOfSum(logits);
  if (!std::isfinite(log_sum)) return kNone;
  const auto logprob = [&](int32_t id) { return static_cast<float>(row.logits[id] - log_sum); };

  if (row.num_top > 0) {
    TopK(profile, row.logits, row.n, row.num_top, nullptr, row.top_ids, scratch);
    for (int32_t i = 0; i < row.num_top; ++i) row.top_logprobs[i] = logprob(row.top_ids[i]);
  }
  const int32_t token = row.edits == nullptr ? Choose(profile, logits, row.n, params, scratch)
                                             : ChooseEdited(profile, row, params, scratch);
  return token < 0 ? kNone : SampleResult{token, logprob(token)};
}

}  // namespace sluice::kernels
