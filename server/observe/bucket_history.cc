#include "server/observe/bucket_history.h"

#include <algorithm>

namespace sluice {
namespace {

std::shared_ptr<const std::vector<Bucket>> LadderOf(
    const ModelStats& stats, const std::shared_ptr<const std::vector<Bucket>>& former) {
  std::vector<Bucket> ladder;
  for (const BucketStats& bucket : stats.buckets) {
    if (bucket.in_ladder) ladder.push_back(bucket.bucket);
  }
  if (former != nullptr && ladder == *former) return former;
  return std::make_shared<const std::vector<Bucket>>(std::move(ladder));
}

// Returns the counts of each bucket of `after` since `before`, without buckets that had no batch. A
// bucket that `before` lacks, because it is new or was forgotten, starts from 0.
std::vector<BucketCounts> UsedSince(std::span<const BucketCounts> before,
                                    std::span<const BucketCounts> after) {
  std::vector<BucketCounts> used;
  auto former = before.begin();
  for (const BucketCounts& each : after) {
    while (former != before.end() && former->bucket < each.bucket) ++former;
    const bool known = former != before.end() && former->bucket == each.bucket;
    const BatchCounts counts = Since(known ? former->counts : BatchCounts(), each.counts);
    if (counts.batches > 0) used.push_back({each.bucket, counts});
  }
  return used;
}

}  // namespace

HistoryStretch Joined(std::span<const HistoryStretch> stretches) {
  HistoryStretch joined = stretches.back();
  joined.begin = stretches.front().begin;
  joined.all = {};
  std::map<Bucket, BatchCounts> buckets;
  for (const HistoryStretch& stretch : stretches) {
    joined.all.Add(stretch.all);
    for (const BucketCounts& each : stretch.buckets) buckets[each.bucket].Add(each.counts);
  }
  joined.buckets.clear();
  for (const auto& [bucket, counts] : buckets) joined.buckets.push_back({bucket, counts});
  return joined;
}

HistoryStretch LastHour(std::span<const HistoryStretch> stretches, MonoTime now) {
  const auto recent = std::ranges::find_if(stretches, [now](const HistoryStretch& stretch) {
    return stretch.end > now - std::chrono::hours(1);
  });
  const std::span<const HistoryStretch> hour = stretches.subspan(recent - stretches.begin());
  if (!hour.empty()) return Joined(hour);
  HistoryStretch empty;
  empty.begin = empty.end = now;
  return empty;
}

BucketHistory::Counted BucketHistory::CountedIn(const ModelStats& stats, MonoTime now) {
  Counted counted{.at = now, .steps = stats.steps, .all = CountsOf(stats.forgotten_buckets)};
  counted.buckets.reserve(stats.buckets.size());
  for (const BucketStats& bucket : stats.buckets) {
    counted.buckets.push_back({bucket.bucket, CountsOf(bucket)});
    counted.all.Add(counted.buckets.back().counts);
  }
  return counted;
}

HistoryStretch BucketHistory::StretchOf(const OfModel& model, const ModelStats& stats,
                                        MonoTime now) {
  const Counted end = CountedIn(stats, now);
  // The counts of a model that was loaded again start from 0.
  const Counted begin = end.steps < model.begin.steps ? Counted{} : model.begin;
  const std::vector<TokenWeight>& lengths = stats.traffic.lengths;
  return {.begin = model.begin.at,
          .end = now,
          .all = Since(begin.all, end.all),
          .buckets = UsedSince(begin.buckets, end.buckets),
          .length_p50 = WeightedQuantile(lengths, 0.5),
          .length_p90 = WeightedQuantile(lengths, 0.9),
          .length_p99 = WeightedQuantile(lengths, 0.99),
          .ladder = LadderOf(stats, model.ladder)};
}

void BucketHistory::Add(std::span<const ModelStats> served, MonoTime now) {
  MutexLock lock(&mu_);
  std::map<Key, OfModel> models;
  for (const ModelStats& stats : served) {
    Key key(stats.model->name, stats.model->version);
    if (const auto found = models_.find(key); found != models_.end()) {
      OfModel& model = found->second;
      HistoryStretch stretch = StretchOf(model, stats, now);
      model.ladder = stretch.ladder;
      model.ended.Add(std::move(stretch));
      models.insert(models_.extract(found));
    }
    OfModel& model = models[std::move(key)];
    model.begin = CountedIn(stats, now);
  }
  models_ = std::move(models);
}

std::vector<HistoryStretch> BucketHistory::Of(const ModelStats& stats, MonoTime now) const {
  MutexLock lock(&mu_);
  const auto found = models_.find(Key(stats.model->name, stats.model->version));
  if (found == models_.end()) return {};
  std::vector<HistoryStretch> stretches = found->second.ended.Latest();
  std::ranges::reverse(stretches);
  stretches.push_back(StretchOf(found->second, stats, now));
  return stretches;
}

}  // namespace sluice
