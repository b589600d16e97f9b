#include "server/protocol/describe/admin_messages.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "server/common/durations.h"
#include "server/common/status.h"
#include "server/observe/bucket_summary.h"

namespace sluice {
namespace {

namespace v1 = admin::v1;
using Sizes = google::protobuf::RepeatedPtrField<v1::SizeCount>;
using Buckets = google::protobuf::RepeatedPtrField<v1::Bucket>;

void Write(const Bucket& bucket, v1::Bucket* out) {
  out->set_tokens(bucket.tokens);
  out->set_rows(bucket.sequences);
  out->set_positions(bucket.positions);
}

void Write(std::span<const Bucket> buckets, Buckets* out) {
  for (const Bucket& bucket : buckets) Write(bucket, out->Add());
}

void Write(std::span<const TokenWeight> entries, Sizes* out) {
  for (const TokenWeight& entry : Coarsen(entries, kMaxReportedSizes)) {
    v1::SizeCount* size = out->Add();
    size->set_tokens(entry.tokens);
    size->set_weight(entry.weight);
  }
}

void Write(const BatchCounts& counts, v1::BatchCounts* out) {
  out->set_batches(counts.batches);
  out->set_hits(counts.hits);
  out->set_rows(counts.sequences);
  out->set_useful_tokens(counts.useful_tokens);
  out->set_computed_tokens(counts.computed_tokens);
  out->set_bucket_tokens(counts.bucket_tokens);
  out->set_replay_seconds(Seconds(counts.replay));
  const BatchRatios ratios = RatiosOf(counts);
  out->set_bucket_fill(ratios.bucket_fill);
  out->set_executed_efficiency(ratios.executed_efficiency);
  out->set_hit_rate(ratios.hit_rate);
}

void Write(const BucketStats& stats, MonoTime now, v1::BucketUse* out) {
  Write(stats.bucket, out->mutable_bucket());
  out->set_ready(stats.ready);
  out->set_in_ladder(stats.in_ladder);
  out->set_batches(stats.batches);
  out->set_rows(stats.sequences);
  out->set_useful_tokens(stats.useful_tokens);
  out->set_bucket_tokens(stats.bucket_tokens);
  out->set_computed_tokens(stats.computed_tokens);
  const BucketSummary summary = Summarize({&stats, 1});
  out->set_bucket_fill(summary.bucket_fill);
  out->set_executed_efficiency(summary.executed_efficiency);
  out->set_hit_rate(summary.hit_rate);
  out->set_cost_seconds(stats.cost_seconds);
  out->set_memory_bytes(stats.memory_bytes);
  out->set_activation_memory_bytes(stats.activation_bytes);
  out->set_prepare_seconds(Seconds(stats.prepare_time));
  const bool used = stats.last_used != MonoTime{};
  out->set_last_used_age_seconds(used ? std::max(0.0, Seconds(now - stats.last_used)) : -1);
}

void Write(const LadderChanges& changes, v1::LadderChanges* out) {
  out->set_added(changes.added);
  out->set_removed(changes.removed);
  out->set_merged(changes.merged);
  out->set_split(changes.split);
  out->set_evicted(changes.evicted);
  out->set_reviews(changes.reviews);
}

void Write(const CostState& costs, v1::CostLaw* out) {
  out->set_base(costs.law[0]);
  out->set_per_bucket_token(costs.law[1]);
  out->set_per_computed_token(costs.law[2]);
  out->set_per_context_token(costs.law[3]);
  out->set_per_distinct_position(costs.law[4]);
  out->set_per_sampled_row(costs.law[5]);
  out->set_per_distinct_adapter(costs.law[6]);
}

void Write(const TrafficStats& traffic, v1::ModelBuckets* out) {
  out->set_shape_entropy_bits(traffic.shape_entropy_bits);
  out->set_length_entropy_bits(traffic.length_entropy_bits);
  Write(traffic.lengths, out->mutable_lengths());
  Write(traffic.batch_tokens, out->mutable_batch_totals());
  out->set_sequences_per_second(traffic.arrivals.sequences_per_second);
  out->set_tokens_per_second(traffic.arrivals.tokens_per_second);
}

void Write(const ExplainedWait& wait, MonoTime arrival, v1::ExplainResponse::Wait* out) {
  out->set_at_seconds(Seconds(wait.at - arrival));
  const bool bounded = wait.until != MonoTime::max();
  out->set_until_seconds(bounded ? std::max(0.0, Seconds(wait.until - arrival)) : -1);
  out->set_reason(std::string(NameOf(wait.reason)));
  out->set_waiting_tokens(wait.waiting.tokens);
  out->set_waiting_rows(wait.waiting.sequences);
}

// Returns the request's name as `caller` sees it.
std::string NameFor(const std::string& caller, const RequestName& name) {
  if (name.caller == caller) return name.id;
  return absl::StrCat("#", absl::Hex(absl::HashOf(name.caller, name.id), absl::kZeroPad16));
}

void WriteCoBatched(const Explanation& of, const CoBatchedRequests& co_batched,
                    v1::ExplainResponse::Step* out) {
  out->set_other_requests(co_batched.requests - 1);
  bool own = false;  // the request itself was found; another one may have the same id
  for (const std::shared_ptr<const RequestName>& name : co_batched.named) {
    const bool is_own = !own && name->id == of.request_id && name->caller == of.caller;
    own |= is_own;
    if (!is_own) out->add_shared_with(NameFor(of.caller, *name));
  }
}

void Write(const ExplainedStep& step, const Explanation& of, v1::ExplainResponse::Step* out) {
  const MonoTime arrival = of.trace.received;
  out->set_step(step.step);
  out->set_start_seconds(Seconds(step.start - arrival));
  out->set_replay_seconds(Seconds(step.replay));
  Write(step.bucket, out->mutable_bucket());
  out->set_batch_tokens(step.batch.tokens);
  out->set_batch_rows(step.batch.sequences);
  out->set_own_tokens(step.own_tokens);
  out->set_trigger(std::string(NameOf(step.trigger)));
  out->set_lookup(std::string(NameOf(step.lookup)));
  out->set_steps(step.count);
  out->set_last_step(step.last_step);
  out->set_longest_replay_seconds(Seconds(step.longest));
  if (step.co_batched != nullptr) WriteCoBatched(of, *step.co_batched, out);
}

std::string StatusText(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

}  // namespace

v1::ModelBuckets DescribeBuckets(const ModelStats& stats, const BackendInfo& backend,
                                 const EngineOptions& options, MonoTime now) {
  v1::ModelBuckets out;
  out.set_model_name(stats.model->name);
  out.set_model_version(absl::StrCat(stats.model->version));
  out.set_device(backend.device);
  out.set_profile(stats.profile);
  out.set_attention(AttentionVariantName(stats.attention));
  out.set_policy(std::string(NameOf(options.batch.policy)));
  out.set_strategy(std::string(NameOf(stats.ladder_options.strategy)));
  out.set_memory_limit_bytes(stats.ladder_options.memory_limit_bytes);
  out.set_memory_limit_effect(stats.memory_limit_effect);
  out.set_device_tokens_per_second(stats.device_tokens_per_second);
  for (const BucketStats& bucket : stats.buckets) Write(bucket, now, out.add_buckets());
  const BucketSummary all = Summarize(stats.buckets);
  out.set_batches(all.batches);
  out.set_hit_rate(all.hit_rate);
  out.set_bucket_fill(all.bucket_fill);
  out.set_executed_efficiency(all.executed_efficiency);
  out.set_memory_overhead(all.memory_overhead);
  out.set_plan_memory_bytes(stats.plan_memory_bytes);
  const SlotMemory& slot = stats.slot_memory;
  out.set_slot_memory_bytes(slot.activations + slot.kv);
  out.set_weight_memory_bytes(stats.weight_bytes + stats.adapters.bytes);
  out.set_activation_memory_bytes(slot.activations);
  out.set_kv_memory_bytes(slot.kv);
  out.set_pinned_memory_bytes(slot.pinned);
  const LadderChoice chosen = ChoiceOf(stats.ladder_options);
  out.mutable_ladder_options()->insert(chosen.begin(), chosen.end());
  out.mutable_ladder_kept()->insert(stats.ladder_kept.begin(), stats.ladder_kept.end());
  out.set_head_graph_memory_bytes(slot.graphs);
  out.set_mapped_memory_bytes(stats.mapped_bytes);
  out.set_copied_memory_bytes(stats.copied_bytes);
  out.set_queued_memory_bytes(stats.queued_bytes);
  out.set_ladder_memory_bytes(stats.plan_memory_bytes + slot.activation_room);
  Write(stats.traffic, &out);
  Write(stats.ladder_changes, out.mutable_ladder_changes());
  Write(stats.costs, out.mutable_cost_law());
  return out;
}

void AddLastHour(const HistoryStretch& hour, const ModelStats& stats, v1::ModelBuckets* model) {
  Write(hour.all, model->mutable_last_hour());
  const nanoseconds length = hour.end - hour.begin;
  model->set_last_hour_seconds(Seconds(length));
  const DeviceUse use = UseOf(hour.all, length, stats);
  model->set_busy_share(use.busy_share);
  model->set_wasted_share(use.wasted_share);
  model->set_useful_share(use.useful_share);
  for (size_t i = 0; i < stats.buckets.size(); ++i) {
    const auto used =
        std::ranges::find(hour.buckets, stats.buckets[i].bucket, &BucketCounts::bucket);
    Write(used == hour.buckets.end() ? BatchCounts() : used->counts,
          model->mutable_buckets(static_cast<int>(i))->mutable_last_hour());
  }
}

void AddHistory(std::span<const HistoryStretch> history, MonoTime now, v1::ModelBuckets* model) {
  const std::vector<Bucket>* former = nullptr;
  for (const HistoryStretch& stretch : history) {
    v1::HistoryStretch* const out = model->add_history();
    out->set_begin_age_seconds(Seconds(now - stretch.begin));
    out->set_end_age_seconds(Seconds(now - stretch.end));
    out->set_batches(stretch.all.batches);
    out->set_hits(stretch.all.hits);
    out->set_useful_tokens(stretch.all.useful_tokens);
    out->set_bucket_tokens(stretch.all.bucket_tokens);
    out->set_computed_tokens(stretch.all.computed_tokens);
    out->set_replay_seconds(Seconds(stretch.all.replay));
    for (const BucketCounts& each : stretch.buckets) {
      v1::BucketCounts* const bucket = out->add_buckets();
      Write(each.bucket, bucket->mutable_bucket());
      Write(each.counts, bucket->mutable_counts());
    }
    out->set_length_p50(stretch.length_p50);
    out->set_length_p90(stretch.length_p90);
    out->set_length_p99(stretch.length_p99);
    if (stretch.ladder.get() != former) Write(*stretch.ladder, out->mutable_ladder());
    former = stretch.ladder.get();
  }
}

v1::RunReviewResponse DescribeReview(const ReviewReport& report) {
  v1::RunReviewResponse out;
  out.set_changed(report.changed);
  out.set_reason(report.reason);
  Write(report.before, out.mutable_before());
  Write(report.after, out.mutable_after());
  Write(report.diff.added, out.mutable_added());
  Write(report.diff.removed, out.mutable_removed());
  Write(report.diff.merged, out.mutable_merged());
  Write(report.diff.split, out.mutable_split());
  out.set_gain(report.gain);
  out.set_bucket_fill_before(report.bucket_fill_before);
  out.set_bucket_fill_after(report.bucket_fill_after);
  return out;
}

v1::TryStrategiesResponse DescribeTrials(const StrategyTrials& trials) {
  v1::TryStrategiesResponse out;
  out.set_arrivals(trials.arrivals);
  out.set_margin(trials.margin);
  out.set_ladder_is_free(trials.ladder_is_free);
  out.set_best(trials.best);
  for (const StrategyTrial& trial : trials.trials) {
    v1::StrategyTrial* const each = out.add_trials();
    each->set_name(trial.name);
    each->mutable_options()->insert(trial.choice.begin(), trial.choice.end());
    Write(trial.buckets, each->mutable_buckets());
    each->set_bucket_fill(trial.bucket_fill);
    each->set_device_seconds(trial.device_seconds);
    each->set_mean_latency_seconds(trial.mean_latency_seconds);
    each->set_p50_latency_seconds(trial.p50_latency_seconds);
    each->set_p99_latency_seconds(trial.p99_latency_seconds);
    each->set_batches(trial.batches);
    each->set_plan_bytes(trial.plan_bytes);
    each->set_captures(trial.captures);
    each->set_capture_seconds(trial.capture_seconds);
    each->set_gain(trial.gain);
    each->set_wasted_share(trial.wasted_share);
  }
  return out;
}

v1::DescribeStepResponse DescribeStepMessage(const StepDescription& description) {
  v1::DescribeStepResponse out;
  out.set_config_json(description.model->config_json);
  out.set_kv_dtype(std::string(NameOf(description.model->config.kv_dtype)));
  out.set_sequences(description.step.sequences);
  out.set_tokens(description.step.tokens);
  out.set_context(description.step.context);
  out.set_attention_variant(AttentionVariantName(description.attention));
  out.set_attention_reason(description.attention_reason);
  out.set_profile(description.profile);
  out.mutable_weight_bytes()->Add(description.weight_bytes.begin(), description.weight_bytes.end());
  out.mutable_op_seconds()->Add(description.seconds.begin(), description.seconds.end());
  return out;
}

v1::ExplainResponse DescribeRequest(const Explanation& explanation) {
  const RequestTrace& trace = explanation.trace;
  v1::ExplainResponse out;
  out.set_model_name(explanation.model);
  out.set_model_version(absl::StrCat(explanation.version));
  out.set_status(StatusText(explanation.status));
  const MonoTime queue_end = trace.first_run == MonoTime{} ? trace.done : trace.first_run;
  out.set_queue_seconds(Seconds(queue_end - trace.queued));
  out.set_total_seconds(Seconds(trace.done - trace.received));
  for (const ExplainedWait& wait : explanation.waits) Write(wait, trace.received, out.add_waits());
  for (const ExplainedStep& step : explanation.steps) Write(step, explanation, out.add_steps());
  out.set_total_steps(trace.steps);
  out.set_drafted_tokens(trace.drafted_tokens);
  out.set_accepted_tokens(trace.accepted_tokens);
  if (trace.drafted_tokens > 0) out.set_draft_source(std::string(NameOf(trace.draft_kind)));
  return out;
}

}  // namespace sluice
