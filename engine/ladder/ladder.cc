#include "engine/ladder/ladder.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"

namespace sluice {
namespace {

// Keeps `count` of the ascending `capacities`, evenly spaced and including both ends. If `count` is
// 1, keeps only the last one.
std::vector<int32_t> Thin(const std::vector<int32_t>& capacities, size_t count) {
  if (capacities.size() <= count) return capacities;
  if (count == 1) return {capacities.back()};
  std::vector<int32_t> kept(count);
  for (size_t i = 0; i < count; ++i) {
    kept[i] = capacities[i * (capacities.size() - 1) / (count - 1)];
  }
  return kept;
}

// Returns whether `next` may follow `before` in a ladder. Does not check the heights of columns.
bool Ascends(const Bucket& before, const Bucket& next) {
  if (before.padded() != next.padded()) return false;
  if (!before.padded()) return before.tokens < next.tokens && before.sequences <= next.sequences;
  return before.positions == next.positions ? before.sequences < next.sequences
                                            : before.positions < next.positions;
}

std::vector<int32_t> CapacitiesOf(const Ladder& ladder) {
  std::vector<int32_t> capacities;
  for (const Bucket& bucket : ladder.buckets()) capacities.push_back(bucket.tokens);
  return capacities;
}

// Returns the buckets of `ladder` that are not in `other`, in ascending order.
std::vector<Bucket> Missing(const Ladder& ladder, const Ladder& other) {
  std::vector<Bucket> missing;
  std::ranges::copy_if(ladder.buckets(), std::back_inserter(missing),
                       [&](const Bucket& bucket) { return !other.Contains(bucket); });
  std::ranges::sort(missing);
  return missing;
}

// Returns `highest` and the powers of two below it, ascending.
std::vector<int32_t> PowersUpTo(int32_t highest) {
  std::vector<int32_t> powers;
  for (int32_t power = 1; power < highest; power *= 2) powers.push_back(power);
  powers.push_back(highest);
  return powers;
}

}  // namespace

std::optional<size_t> FirstOutOfOrder(std::span<const Bucket> buckets) {
  int32_t tallest = INT32_MAX;  // rows of the previous column
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (i > 0 && !Ascends(buckets[i - 1], buckets[i])) return i;
    if (!buckets[i].padded()) continue;
    if (i > 0 && buckets[i - 1].positions < buckets[i].positions)
      tallest = buckets[i - 1].sequences;
    if (buckets[i].sequences > tallest) return i;
  }
  return std::nullopt;
}

Ladder::Ladder(std::vector<Bucket> buckets) : buckets_(std::move(buckets)) {
  SLUICE_CHECK(!buckets_.empty() && !FirstOutOfOrder(buckets_));
  for (const Bucket& bucket : buckets_) max_sequences_ = std::max(max_sequences_, bucket.sequences);
}

bool Ladder::Contains(const Bucket& bucket) const {
  return std::ranges::find(buckets_, bucket) != buckets_.end();
}

const Bucket* Ladder::Choose(const BatchSize& size) const {
  auto first = buckets_.begin();
  auto last = buckets_.end();
  if (padded()) {
    first = std::partition_point(
        first, last, [&](const Bucket& bucket) { return bucket.positions < size.longest; });
    if (first == last) return nullptr;
    last = std::partition_point(first, last, [width = first->positions](const Bucket& bucket) {
      return bucket.positions == width;
    });
  }
  const auto it =
      std::partition_point(first, last, [&](const Bucket& bucket) { return !bucket.Fits(size); });
  return it == last ? nullptr : &*it;
}

Ladder MakePackedLadder(std::vector<int32_t> capacities, const LadderLimits& limits) {
  SLUICE_CHECK(limits.max_tokens >= 1 && limits.max_sequences >= 1);
  std::erase_if(capacities, [&](int32_t tokens) { return tokens >= limits.max_tokens; });
  capacities.push_back(limits.max_tokens);
  std::sort(capacities.begin(), capacities.end());
  capacities.erase(std::unique(capacities.begin(), capacities.end()), capacities.end());
  SLUICE_CHECK(capacities.front() >= 1);

  std::vector<Bucket> buckets;
  buckets.reserve(capacities.size());
  for (const int32_t tokens : capacities) {
    buckets.push_back({.tokens = tokens, .sequences = std::min(tokens, limits.max_sequences)});
  }
  return Ladder(std::move(buckets));
}

absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, const LadderLimits& limits) {
  for (const auto& [path, value] : {std::pair("max_buckets", options.max_buckets),
                                    std::pair("min_tokens", options.min_tokens)}) {
    const OptionSpec<LadderOptions>& spec = OptionSpecOf<LadderOptions>(path);
    if (!spec.integer->Contains(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is ", value, ", expected ", spec.expected));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> capacities, Capacities(options, limits));
  const Ladder dense = MakePackedLadder(std::move(capacities), limits);
  return MakePackedLadder(Thin(CapacitiesOf(dense), limits.MaxBuckets(options)), limits);
}

Ladder MakePaddedLadder(std::span<const int32_t> widths, const LadderLimits& limits) {
  std::vector<Bucket> buckets;
  for (const int32_t positions : widths) {
    SLUICE_CHECK(positions >= 1 && positions <= limits.max_tokens && limits.max_sequences >= 1);
    const int32_t tallest = std::min(limits.max_sequences, limits.max_tokens / positions);
    for (const int32_t sequences : PowersUpTo(tallest)) {
      buckets.push_back(Bucket::Padded(sequences, positions));
    }
  }
  return Ladder(std::move(buckets));
}

absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, PolicyKind policy,
                                   const LadderLimits& limits) {
  if (!IsPadded(policy)) return BuildLadder(options, limits);
  if (policy == PolicyKind::kStaticPadded)
    return MakePaddedLadder({{limits.max_positions}}, limits);
  LadderLimits columns = limits;
  columns.max_tokens = limits.max_positions;
  SLUICE_ASSIGN_OR_RETURN(const Ladder packed, BuildLadder(options, columns));
  return MakePaddedLadder(CapacitiesOf(packed), limits);
}

LadderDiff CompareLadders(const Ladder& before, const Ladder& after) {
  SLUICE_CHECK(before.padded() == after.padded());
  LadderDiff diff;
  if (before.padded()) {
    diff.added = Missing(after, before);
    diff.removed = Missing(before, after);
    return diff;
  }
  auto old_bucket = before.buckets().begin();
  auto new_bucket = after.buckets().begin();
  const auto old_end = before.buckets().end();
  const auto new_end = after.buckets().end();
  while (old_bucket != old_end || new_bucket != new_end) {
    const auto old_first = old_bucket;
    const auto new_first = new_bucket;
    while ((old_bucket != old_end || new_bucket != new_end) &&
           (old_bucket == old_end || new_bucket == new_end || *old_bucket != *new_bucket)) {
      const bool old_is_less =
          new_bucket == new_end || (old_bucket != old_end && *old_bucket < *new_bucket);
      ++(old_is_less ? old_bucket : new_bucket);
    }
    const auto gone = old_bucket - old_first;
    const auto come = new_bucket - new_first;
    std::vector<Bucket>& fate = come == 0 || come == gone ? diff.removed
                                : come < gone             ? diff.merged
                                                          : diff.split;
    fate.insert(fate.end(), old_first, old_bucket);
    diff.added.insert(diff.added.end(), new_first, new_bucket);
    if (old_bucket != old_end) ++old_bucket, ++new_bucket;  // skips the bucket that is in both
  }
  return diff;
}

}  // namespace sluice
