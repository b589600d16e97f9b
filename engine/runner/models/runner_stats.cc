#include "engine/runner/models/runner_stats.h"

#include <algorithm>
#include <chrono>

#include "absl/container/btree_map.h"

namespace sluice {
namespace {

KvStats DescribeKv(const PagedScheduler& scheduler) {
  const KvCache& kv = scheduler.kv();
  const PagedScheduler::Counts& counts = scheduler.counts();
  return {.pages = kv.pages(),
          .page_tokens = kv.page_tokens(),
          .held = kv.pages() - kv.available(),
          .idle = kv.idle(),
          .evicted = kv.evicted(),
          .preemptions = counts.preemptions,
          .prefix_tokens = counts.prefix_tokens,
          .reused_tokens = counts.reused_tokens};
}

TrafficStats DescribeTraffic(const Traffic& traffic, MonoTime now) {
  return {.lengths = traffic.lengths().Entries(),
          .batch_tokens = traffic.batch_tokens().Entries(),
          .shape_entropy_bits = traffic.batch_tokens().Entropy(),
          .length_entropy_bits = traffic.lengths().Entropy(),
          .arrivals = traffic.Rate(now)};
}

// Adds to each bucket whether the ladder has it, and its measured cost.
void DescribeBuckets(const Ladder& ladder, const CostState& costs,
                     std::vector<BucketStats>* buckets) {
  absl::btree_map<Bucket, double> seconds;
  for (const BucketCost& cost : costs.buckets) seconds[cost.bucket] = cost.mean_seconds;
  for (BucketStats& bucket : *buckets) {
    bucket.in_ladder = std::find(ladder.buckets().begin(), ladder.buckets().end(), bucket.bucket) !=
                       ladder.buckets().end();
    const auto it = seconds.find(bucket.bucket);
    if (it != seconds.end()) bucket.cost_seconds = it->second;
  }
}

void DescribeRequests(const RequestTable& requests, ModelStats* stats) {
  stats->running_requests = requests.running_requests();
  stats->waiting_requests = requests.waiting_requests();
  stats->running_sequences = requests.running_sequences();
  stats->steps = requests.steps();
}

void DescribeQueue(const SequenceQueue& queue, MonoTime now, ModelStats* stats) {
  stats->waiting_sequences = queue.size() - queue.running();
  stats->queued_tokens = queue.tokens();
  if (!queue.empty()) stats->oldest_age = std::max(now - queue.OldestArrival(), nanoseconds(0));
}

}  // namespace

ModelStats StatsOf(const PreparedModel& prepared, const RunnerState& state, MonoTime now) {
  ModelStats stats;
  stats.buckets = prepared.plans->Stats();
  stats.plan_memory_bytes = prepared.plans->memory_bytes();
  stats.slot_memory = prepared.slots.front()->memory();
  stats.profile = prepared.info.profile;
  stats.weight_bytes = prepared.executable->weight_bytes();
  const Checkpoint& files = prepared.plans->model().checkpoint;
  (files.copied() ? stats.copied_bytes : stats.mapped_bytes) = files.bytes();
  stats.ladder_changes.evicted = prepared.evicted;
  stats.attention = prepared.executable->attention();
  stats.kernels = prepared.executable->kernels();
  stats.time_to_ready = prepared.duration;

  MutexLock lock(&state.mu);
  const Scheduler& scheduler = state.scheduler.scheduler();
  DescribeRequests(state.requests, &stats);
  DescribeQueue(scheduler.queue(), now, &stats);
  stats.queued_bytes = state.admission.bytes();
  stats.estimated_drain = std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(scheduler.costs().EstimateDrain(
          state.requests.remaining_tokens(), scheduler.ladder()->largest())));
  stats.estimated_wait = state.admission.Wait(state.requests.running_sequences(), scheduler);
  stats.costs = scheduler.costs().state();
  if (prepared.kv.keeps_pages) stats.kv = DescribeKv(state.scheduler);
  stats.traffic = DescribeTraffic(scheduler.traffic(), now);
  DescribeBuckets(*scheduler.ladder(), stats.costs, &stats.buckets);
  return stats;
}

}  // namespace sluice
