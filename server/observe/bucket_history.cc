#include "server/observe/bucket_history.h"

#include <algorithm>

#include "server/observe/bucket_summary.h"

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

}  // namespace

BucketHistory::Counted BucketHistory::CountedIn(const ModelStats& stats, MonoTime now) {
  Counted counted{.at = now, .steps = stats.steps};
  for (const BucketStats& bucket : stats.buckets) {
    counted.batches += bucket.batches;
    counted.hits += bucket.hits;
    counted.useful_tokens += bucket.useful_tokens;
    counted.computed_tokens += bucket.computed_tokens;
    counted.bucket_tokens += bucket.bucket_tokens;
  }
  return counted;
}

HistoryStretch BucketHistory::StretchOf(const OfModel& model, const ModelStats& stats,
                                        MonoTime now) {
  const Counted end = CountedIn(stats, now);
  // The counts of a model that was loaded again start from 0.
  const Counted begin = end.steps < model.begin.steps ? Counted{} : model.begin;
  // The engine may have dropped counts of buckets that were withdrawn long ago.
  const auto since = [](int64_t before, int64_t after) {
    return std::max<int64_t>(after - before, 0);
  };
  const std::vector<TokenWeight>& lengths = stats.traffic.lengths;
  return {.begin = model.begin.at,
          .end = now,
          .batches = since(begin.batches, end.batches),
          .hits = since(begin.hits, end.hits),
          .useful_tokens = since(begin.useful_tokens, end.useful_tokens),
          .computed_tokens = since(begin.computed_tokens, end.computed_tokens),
          .bucket_tokens = since(begin.bucket_tokens, end.bucket_tokens),
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
