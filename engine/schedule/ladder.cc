#include "engine/schedule/ladder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace sluice {
namespace {

// Keeps `count` of the ascending `capacities`, evenly spaced, ends kept; the last one alone when
// count is 1.
std::vector<int32_t> Thin(const std::vector<int32_t>& capacities, size_t count) {
  if (capacities.size() <= count) return capacities;
  if (count == 1) return {capacities.back()};
  std::vector<int32_t> kept(count);
  for (size_t i = 0; i < count; ++i) {
    kept[i] = capacities[i * (capacities.size() - 1) / (count - 1)];
  }
  return kept;
}

}  // namespace

Ladder::Ladder(std::vector<Bucket> buckets) : buckets_(std::move(buckets)) {
  SLUICE_CHECK(!buckets_.empty());
  for (size_t i = 1; i < buckets_.size(); ++i) {
    SLUICE_CHECK(buckets_[i - 1].tokens < buckets_[i].tokens);
    SLUICE_CHECK(buckets_[i - 1].sequences <= buckets_[i].sequences);
  }
}

const Bucket* Ladder::Choose(int32_t tokens, int32_t sequences) const {
  const auto it = std::partition_point(buckets_.begin(), buckets_.end(), [&](const Bucket& bucket) {
    return !bucket.Fits(tokens, sequences);
  });
  return it == buckets_.end() ? nullptr : &*it;
}

absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, const LadderLimits& limits) {
  SLUICE_CHECK(limits.max_tokens >= 1 && limits.max_sequences >= 1 && limits.tile_tokens >= 1);
  if (options.max_buckets < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_buckets is ", options.max_buckets, ", must be at least 1"));
  }
  if (options.min_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens is ", options.min_tokens, ", must be at least 1"));
  }
  absl::StatusOr<std::vector<int32_t>> capacities = MakeLadderStrategy(options)->Capacities(limits);
  if (!capacities.ok()) return capacities.status();

  std::erase_if(*capacities, [&](int32_t tokens) { return tokens >= limits.max_tokens; });
  capacities->push_back(limits.max_tokens);
  std::sort(capacities->begin(), capacities->end());
  capacities->erase(std::unique(capacities->begin(), capacities->end()), capacities->end());

  std::vector<Bucket> buckets;
  for (int32_t tokens : Thin(*capacities, static_cast<size_t>(options.max_buckets))) {
    buckets.push_back({.tokens = tokens, .sequences = std::min(tokens, limits.max_sequences)});
  }
  return Ladder(std::move(buckets));
}

}  // namespace sluice
