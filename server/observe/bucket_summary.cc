#include "server/observe/bucket_summary.h"

#include "absl/strings/str_cat.h"

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
  int64_t batches = 0, hits = 0, useful = 0, computed = 0, capacity = 0, rows = 0, row_capacity = 0;
  int64_t activations = 0, exact = 0;
  for (const BucketStats& bucket : buckets) {
    batches += bucket.batches;
    hits += bucket.hits;
    useful += bucket.useful_tokens;
    computed += bucket.computed_tokens;
    capacity += bucket.bucket_tokens;
    rows += bucket.sequences;
    activations += bucket.batches * bucket.activation_bytes;
    exact += bucket.exact_activation_bytes;
    row_capacity += bucket.batches * bucket.bucket.sequences;
  }
  return {.batches = batches,
          .hit_rate = Ratio(hits, batches),
          .bucket_fill = Ratio(useful, capacity),
          .executed_efficiency = Ratio(useful, computed),
          .row_fill = Ratio(rows, row_capacity),
          .memory_overhead = exact == 0 ? 0 : Ratio(activations, exact) - 1};
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
