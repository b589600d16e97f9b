// What a ModelRunner says about itself.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/container/btree_map.h"
#include "engine/runner/model_runner.h"

namespace sluice {

ModelStats ModelRunner::Stats() const {
  ModelStats stats;
  stats.model = model_;
  stats.buckets = prepared_.plans->Stats();
  stats.plan_memory_bytes = prepared_.plans->memory_bytes();
  stats.slot_memory_bytes = prepared_.slots.front()->memory_bytes();
  stats.weight_bytes = prepared_.executable->weight_bytes();
  const MonoTime now = clock_->Now();
  MutexLock lock(&mu_);
  stats.running_requests = running_requests_;
  stats.waiting_requests = static_cast<int64_t>(requests_.size()) - running_requests_;
  stats.running_sequences = Running();
  stats.waiting_sequences = static_cast<int64_t>(queue().size() - queue().running());
  stats.queued_tokens = queue().tokens();
  stats.queued_bytes = budget_.bytes();
  if (!queue().empty()) stats.oldest_age = std::max(now - queue().OldestArrival(), nanoseconds(0));
  stats.estimated_drain = std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(scheduler_.scheduler().costs().EstimateDrain(
          work_tokens_, scheduler_.scheduler().ladder()->largest())));
  stats.steps = steps_;
  stats.costs = scheduler_.scheduler().costs().state();
  DescribeKv(&stats);
  DescribeTraffic(now, &stats);
  DescribeBuckets(&stats);
  return stats;
}

void ModelRunner::DescribeKv(ModelStats* stats) const {
  if (!prepared_.kv.keeps_pages) return;
  const KvCache& kv = scheduler_.kv();
  const PagedScheduler::Counts& counts = scheduler_.counts();
  stats->kv = {.pages = kv.pages(),
               .page_tokens = kv.page_tokens(),
               .held = kv.pages() - kv.available(),
               .idle = kv.idle(),
               .evicted = kv.evicted(),
               .preemptions = counts.preemptions,
               .prefix_tokens = counts.prefix_tokens,
               .reused_tokens = counts.reused_tokens};
}

void ModelRunner::DescribeTraffic(MonoTime now, ModelStats* stats) const {
  const Traffic& traffic = scheduler_.scheduler().traffic();
  stats->traffic = {.lengths = traffic.lengths().Entries(),
                    .batch_tokens = traffic.batch_tokens().Entries(),
                    .shape_entropy_bits = traffic.batch_tokens().Entropy(),
                    .arrivals = traffic.Rate(now)};
}

// Costs must be there already.
void ModelRunner::DescribeBuckets(ModelStats* stats) const {
  absl::btree_map<Bucket, double> seconds;
  for (const auto& cost : stats->costs.buckets) seconds[cost.bucket] = cost.mean_seconds;
  const std::span<const Bucket> ladder = scheduler_.scheduler().ladder()->buckets();
  for (BucketStats& bucket : stats->buckets) {
    bucket.in_ladder = std::find(ladder.begin(), ladder.end(), bucket.bucket) != ladder.end();
    const auto it = seconds.find(bucket.bucket);
    if (it != seconds.end()) bucket.cost_seconds = it->second;
  }
}

absl::StatusOr<Explanation> ModelRunner::Explain(std::string_view request_id) const {
  return history_.Find(request_id);
}

ModelRunner::ReviewState ModelRunner::StateForReview() const {
  MutexLock lock(&mu_);
  return {scheduler_.scheduler().ladder(), scheduler_.scheduler().costs(),
          scheduler_.scheduler().traffic()};
}

uint64_t ModelRunner::Arrivals() const {
  MutexLock lock(&mu_);
  return last_ticket_;
}

}  // namespace sluice
