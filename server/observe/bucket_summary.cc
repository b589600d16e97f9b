#include "server/observe/bucket_summary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/common/durations.h"

namespace sluice {
namespace {

double Ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::string BucketLabel(const Bucket& bucket) {
  return bucket.padded() ? absl::StrCat(bucket.sequences, "x", bucket.positions, "p")
                         : absl::StrCat(bucket.tokens, "x", bucket.sequences);
}

BucketSummary Summarize(std::span<const BucketStats> buckets) {
  int64_t batches = 0, hits = 0, useful = 0, computed = 0, capacity = 0;
  int64_t activations = 0, exact = 0;
  for (const BucketStats& bucket : buckets) {
    batches += bucket.batches;
    hits += bucket.hits;
    useful += bucket.useful_tokens;
    computed += bucket.computed_tokens;
    capacity += bucket.bucket_tokens;
    activations += bucket.batches * bucket.activation_bytes;
    exact += bucket.exact_activation_bytes;
  }
  return {.batches = batches,
          .hit_rate = Ratio(hits, batches),
          .bucket_fill = Ratio(useful, capacity),
          .executed_efficiency = Ratio(useful, computed),
          .memory_overhead = exact == 0 ? 0 : Ratio(activations, exact) - 1};
}

void BatchCounts::Add(const BatchCounts& other) {
  batches += other.batches;
  hits += other.hits;
  sequences += other.sequences;
  useful_tokens += other.useful_tokens;
  computed_tokens += other.computed_tokens;
  bucket_tokens += other.bucket_tokens;
  replay += other.replay;
}

BatchCounts CountsOf(const BucketStats& bucket) {
  return {.batches = bucket.batches,
          .hits = bucket.hits,
          .sequences = bucket.sequences,
          .useful_tokens = bucket.useful_tokens,
          .computed_tokens = bucket.computed_tokens,
          .bucket_tokens = bucket.bucket_tokens,
          .replay = bucket.replay};
}

BatchCounts Since(const BatchCounts& before, const BatchCounts& after) {
  const auto since = [&](auto BatchCounts::*count) {
    return std::max(after.*count - before.*count, decltype(after.*count - before.*count){});
  };
  return {.batches = since(&BatchCounts::batches),
          .hits = since(&BatchCounts::hits),
          .sequences = since(&BatchCounts::sequences),
          .useful_tokens = since(&BatchCounts::useful_tokens),
          .computed_tokens = since(&BatchCounts::computed_tokens),
          .bucket_tokens = since(&BatchCounts::bucket_tokens),
          .replay = since(&BatchCounts::replay)};
}

BatchRatios RatiosOf(const BatchCounts& counts) {
  return {.hit_rate = Ratio(counts.hits, counts.batches),
          .bucket_fill = Ratio(counts.useful_tokens, counts.bucket_tokens),
          .executed_efficiency = Ratio(counts.useful_tokens, counts.computed_tokens)};
}

DeviceUse UseOf(const BatchCounts& counts, nanoseconds interval, const ModelStats& stats) {
  const double seconds = Seconds(interval), busy = Seconds(counts.replay);
  if (seconds <= 0 || busy <= 0) return {};
  const bool padded = !stats.buckets.empty() && stats.buckets.front().bucket.padded();
  const double wasted =
      EmptyRowSeconds(stats.costs, padded, counts.useful_tokens, counts.computed_tokens);
  const double full = stats.device_tokens_per_second * seconds;
  const auto useful = static_cast<double>(counts.useful_tokens);
  return {.busy_share = std::min(busy / seconds, 1.0),
          .wasted_share = std::min(wasted / busy, 1.0),
          .useful_share = full > 0 ? useful / full : 0};
}

std::vector<TokenWeight> Coarsen(std::span<const TokenWeight> entries, size_t count) {
  std::vector<TokenWeight> coarse;
  size_t group = 0;  // the group of the last entry of `coarse`
  for (size_t i = 0; i < entries.size(); ++i) {
    const size_t next = entries.size() <= count ? i : i * count / entries.size();
    if (coarse.empty() || next != group) {
      coarse.push_back(entries[i]);
    } else {
      coarse.back().tokens = entries[i].tokens;
      coarse.back().weight += entries[i].weight;
    }
    group = next;
  }
  return coarse;
}

int32_t WeightedQuantile(std::span<const TokenWeight> entries, double share) {
  double total = 0;
  for (const TokenWeight& entry : entries) total += entry.weight;
  double sum = 0;
  for (const TokenWeight& entry : entries) {
    sum += entry.weight;
    if (sum >= share * total) return entry.tokens;
  }
  return entries.empty() ? 0 : entries.back().tokens;
}

}  // namespace sluice
