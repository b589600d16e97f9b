#include "server/admin/status_page/status_json.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/quantile.h"
#include "base/reason.h"
#include "nlohmann/json.hpp"
#include "server/common/durations.h"
#include "server/observe/bucket_summary.h"

namespace sluice {
namespace {

using nlohmann::json;

json Age(MonoTime then, MonoTime now) { return std::max(0.0, Seconds(now - then)); }

// The counts and ratios of the bucket over the last hour.
json DescribeBucket(const BucketStats& stats, const HistoryStretch& hour, MonoTime now) {
  const auto found = std::ranges::find(hour.buckets, stats.bucket, &BucketCounts::bucket);
  const BatchCounts counts = found == hour.buckets.end() ? BatchCounts() : found->counts;
  const BatchRatios ratios = RatiosOf(counts);
  const bool used = stats.last_used != MonoTime{};
  return {{"bucket", BucketLabel(stats.bucket)},
          {"tokens", stats.bucket.tokens},
          {"rows", stats.bucket.sequences},
          {"ready", stats.ready},
          {"in_ladder", stats.in_ladder},
          {"batches", counts.batches},
          {"sequences", counts.sequences},
          {"hit_rate", ratios.hit_rate},
          {"bucket_fill", ratios.bucket_fill},
          {"executed_efficiency", ratios.executed_efficiency},
          {"replay", Seconds(counts.replay)},
          {"cost", stats.cost_seconds},
          {"memory_bytes", stats.memory_bytes},
          {"last_used_age", used ? Age(stats.last_used, now) : json()}};
}

// The counts since the model was loaded.
json DescribeAllBuckets(const ModelStats& stats) {
  BatchCounts all = CountsOf(stats.forgotten_buckets);
  for (const BucketStats& bucket : stats.buckets) all.Add(CountsOf(bucket));
  return {{"count", all.batches},
          {"useful_tokens", all.useful_tokens},
          {"memory_overhead", Summarize(stats.buckets).memory_overhead}};
}

json DescribeLastHour(const HistoryStretch& hour, const ModelStats& stats) {
  const nanoseconds length = hour.end - hour.begin;
  const BatchRatios ratios = RatiosOf(hour.all);
  const DeviceUse use = UseOf(hour.all, length, stats);
  return {{"seconds", Seconds(length)},
          {"batches", hour.all.batches},
          {"hit_rate", ratios.hit_rate},
          {"bucket_fill", ratios.bucket_fill},
          {"executed_efficiency", ratios.executed_efficiency},
          {"busy_share", use.busy_share},
          {"wasted_share", use.wasted_share},
          {"useful_share", use.useful_share},
          {"device_tokens_per_second", stats.device_tokens_per_second}};
}

json Sizes(std::span<const TokenWeight> entries) {
  json sizes = json::array();
  for (const TokenWeight& entry : Coarsen(entries, kMaxStatusSizes)) {
    sizes.push_back({entry.tokens, entry.weight});
  }
  return sizes;
}

json Quantiles(std::vector<double> values) {
  if (values.empty()) return nullptr;
  return {{"requests", values.size()},
          {"p50", Quantile(std::span(values), 0.5)},
          {"p90", Quantile(std::span(values), 0.9)},
          {"p99", Quantile(std::span(values), 0.99)}};
}

json DescribeLatency(std::span<const RecentActivity::Latency> requests) {
  std::vector<double> total, queue, first_token, inter_token;
  for (const RecentActivity::Latency& request : requests) {
    total.push_back(request.total);
    queue.push_back(request.queue);
    if (request.first_token) first_token.push_back(*request.first_token);
    if (request.inter_token) inter_token.push_back(*request.inter_token);
  }
  return {{"total", Quantiles(std::move(total))},
          {"queue", Quantiles(std::move(queue))},
          {"first_token", Quantiles(std::move(first_token))},
          {"inter_token", Quantiles(std::move(inter_token))}};
}

json DescribeKv(const KvStats& kv) {
  if (kv.pages == 0) return nullptr;
  DraftStats drafts;
  json sources = json::object();
  for (int i = 0; i < kDraftKinds; ++i) {
    const DraftStats& kind = kv.drafts[i];
    drafts.drafted += kind.drafted;
    drafts.accepted += kind.accepted;
    if (kind.drafted == 0) continue;
    sources[std::string(NameOf(static_cast<DraftKind>(i)))] = {{"drafted", kind.drafted},
                                                               {"accepted", kind.accepted}};
  }
  return {{"pages", kv.pages},
          {"page_tokens", kv.page_tokens},
          {"held", kv.held},
          {"idle", kv.idle},
          {"free", kv.pages - kv.held - kv.idle},
          {"evicted", kv.evicted},
          {"preemptions", kv.preemptions},
          {"prefix_tokens", kv.prefix_tokens},
          {"reused_tokens", kv.reused_tokens},
          {"drafted_tokens", drafts.drafted},
          {"accepted_tokens", drafts.accepted},
          {"draft_sources", std::move(sources)}};
}

json DescribeBatch(const BatchTrace& trace, MonoTime now) {
  return {{"age", Age(trace.start, now)},
          {"bucket", BucketLabel(trace.bucket)},
          {"capacity", trace.bucket.tokens},
          {"tokens", trace.useful_tokens},
          {"sequences", trace.sequences},
          {"trigger", std::string(NameOf(trace.trigger))},
          {"lookup", std::string(NameOf(trace.lookup))},
          {"replay", Seconds(trace.replay)}};
}

json LabelArray(std::span<const Bucket> buckets) {
  json labels = json::array();
  for (const Bucket& bucket : buckets) labels.push_back(BucketLabel(bucket));
  return labels;
}

json DescribeReview(const std::optional<RecentActivity::Review>& review, MonoTime now) {
  if (!review) return nullptr;
  const ReviewReport& report = review->report;
  return {{"age", Age(review->at, now)},
          {"adopted", report.changed},
          {"reason", report.reason},
          {"gain", report.gain},
          {"bucket_fill_before", report.bucket_fill_before},
          {"bucket_fill_after", report.bucket_fill_after},
          {"added", LabelArray(report.diff.added)},
          {"removed", LabelArray(report.diff.removed)},
          {"merged", LabelArray(report.diff.merged)},
          {"split", LabelArray(report.diff.split)}};
}

json DescribeLadder(const LadderChanges& changes) {
  return {{"added", changes.added}, {"removed", changes.removed}, {"merged", changes.merged},
          {"split", changes.split}, {"evicted", changes.evicted}, {"reviews", changes.reviews}};
}

// Returns the ladders as lists of bucket tokens (positions, if the buckets are padded), without
// repeating an unchanged ladder, and the intervals, each with the index of its ladder.
json DescribeHistory(std::span<const HistoryStretch> history, MonoTime now) {
  json ladders = json::array(), stretches = json::array();
  const std::vector<Bucket>* former = nullptr;
  for (const HistoryStretch& stretch : history) {
    if (stretch.ladder.get() != former) {
      json sizes = json::array();
      for (const Bucket& bucket : *stretch.ladder) {
        const int32_t size = bucket.padded() ? bucket.positions : bucket.tokens;
        if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
      }
      ladders.push_back(std::move(sizes));
      former = stretch.ladder.get();
    }
    stretches.push_back({{"begin", Age(stretch.begin, now)},
                         {"end", Age(stretch.end, now)},
                         {"batches", stretch.all.batches},
                         {"useful_tokens", stretch.all.useful_tokens},
                         {"bucket_tokens", stretch.all.bucket_tokens},
                         {"computed_tokens", stretch.all.computed_tokens},
                         {"replay", Seconds(stretch.all.replay)},
                         {"lengths", {stretch.length_p50, stretch.length_p90, stretch.length_p99}},
                         {"ladder", ladders.size() - 1}});
  }
  return {{"ladders", std::move(ladders)}, {"stretches", std::move(stretches)}};
}

json DescribeQueue(const ModelStats& stats) {
  return {{"requests_waiting", stats.waiting_requests},
          {"requests_running", stats.running_requests},
          {"sequences_waiting", stats.waiting_sequences},
          {"sequences_running", stats.running_sequences},
          {"tokens", stats.queued_tokens},
          {"bytes", stats.queued_bytes},
          {"oldest_age", Seconds(stats.oldest_age)},
          {"drain", Seconds(stats.estimated_drain)}};
}

json DescribeModel(const ModelStatus& model, MonoTime now) {
  const ModelStats& stats = model.stats;
  json buckets = json::array(), decisions = json::array();
  const HistoryStretch hour = LastHour(model.history, now);
  for (const BucketStats& bucket : stats.buckets) {
    buckets.push_back(DescribeBucket(bucket, hour, now));
  }
  for (const BatchTrace& batch : model.recent.batches) {
    decisions.push_back(DescribeBatch(batch, now));
  }
  return {{"name", stats.model->name},
          {"version", stats.model->version},
          {"ok", model.ok},
          {"failed", model.failed},
          {"steps", stats.steps},
          {"attention", AttentionVariantName(stats.attention)},
          {"queue", DescribeQueue(stats)},
          {"batches", DescribeAllBuckets(stats)},
          {"last_hour", DescribeLastHour(hour, stats)},
          {"buckets", std::move(buckets)},
          {"lengths", Sizes(stats.traffic.lengths)},
          {"batch_tokens", Sizes(stats.traffic.batch_tokens)},
          {"entropy_bits", stats.traffic.shape_entropy_bits},
          {"length_entropy_bits", stats.traffic.length_entropy_bits},
          {"strategy", NameOf(stats.ladder_options.strategy)},
          {"sequences_per_second", stats.traffic.arrivals.sequences_per_second},
          {"tokens_per_second", stats.traffic.arrivals.tokens_per_second},
          {"latency", DescribeLatency(model.recent.requests)},
          {"kv", DescribeKv(stats.kv)},
          {"decisions", std::move(decisions)},
          {"ladder", DescribeLadder(stats.ladder_changes)},
          {"memory_limit_effect", stats.memory_limit_effect},
          {"review", DescribeReview(model.recent.review, now)},
          {"history", DescribeHistory(model.history, now)},
          {"memory",
           {{"weights", stats.weight_bytes},
            {"adapters", stats.adapters.bytes},
            {"plans", stats.plan_memory_bytes},
            {"activations", stats.slot_memory.activations},
            {"head_graphs", stats.slot_memory.graphs},
            {"kv", stats.slot_memory.kv},
            {"pinned", stats.slot_memory.pinned},
            {"mapped", stats.mapped_bytes},
            {"copied", stats.copied_bytes}}}};
}

// Returns the share of the requests that were answered, among all requests except those that were
// refused for a fault of their callers, or null if there were none.
json Goodput(const DaemonStatus& daemon, std::span<const ModelStatus> models) {
  double ok = 0, all = 0;
  for (const ModelStatus& model : models) {
    ok += static_cast<double>(model.ok);
    all += static_cast<double>(model.ok + model.failed);
  }
  for (const ReasonInfo& reason : kReasons) {
    if (reason.at_fault == AtFault::kCaller) continue;
    all += static_cast<double>(daemon.refused[static_cast<size_t>(reason.reason)]);
  }
  return all == 0 ? json() : json(ok / all);
}

json DescribeDaemon(const DaemonStatus& daemon, std::span<const ModelStatus> models) {
  json refused = json::object();
  for (const ReasonInfo& reason : kReasons) {
    const int64_t count = daemon.refused[static_cast<size_t>(reason.reason)];
    if (count > 0) refused[std::string(reason.name)] = count;
  }
  return {{"version", daemon.version},
          {"phase", NameOf(daemon.phase)},
          {"uptime", Seconds(daemon.uptime)},
          {"device", daemon.backend.device},
          {"profile", daemon.backend.profile},
          {"policy", NameOf(daemon.policy)},
          {"refused", std::move(refused)},
          {"goodput", Goodput(daemon, models)},
          {"failed_models", daemon.failed_models}};
}

}  // namespace

std::string StatusJson(const DaemonStatus& daemon, std::span<const ModelStatus> models,
                       MonoTime now) {
  json all = json::array();
  for (const ModelStatus& model : models) all.push_back(DescribeModel(model, now));
  const json status = {{"daemon", DescribeDaemon(daemon, models)}, {"models", std::move(all)}};
  return status.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

}  // namespace sluice
