#include "server/observe/engine_metrics.h"

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/metric_names.h"
#include "server/common/durations.h"
#include "server/common/metric_snapshot.h"
#include "server/observe/bucket_summary.h"

namespace sluice {
namespace {

using Labels = MetricSnapshot::Labels;

Labels With(Labels labels, const std::string& name, const std::string& value) {
  labels.push_back({name, value});
  return labels;
}

// Adds the counts of a bucket's batches.
void AddCounts(const BucketStats& stats, const Labels& labels, MetricSnapshot* snapshot) {
  const auto tokens = [&](const char* kind, int64_t count) {
    snapshot->Counter(metric::kBucketTokens, With(labels, "kind", kind),
                      static_cast<double>(count));
  };
  tokens("useful", stats.useful_tokens);
  tokens("computed", stats.computed_tokens);
  tokens("capacity", stats.bucket_tokens);
  const auto batches = [&](const char* result, std::string_view reason, int64_t count) {
    snapshot->Counter(metric::kBucketBatches,
                      With(With(labels, "result", result), "reason", std::string(reason)),
                      static_cast<double>(count));
  };
  batches("hit", "", stats.hits);
  for (int i = 0; i < kLookups; ++i) {
    // A step that is over capacity runs in no bucket.
    if (Lookup{i} == Lookup::kHit || Lookup{i} == Lookup::kMissOverCapacity) continue;
    batches("miss", NameOf(Lookup{i}), stats.misses[i]);
  }
  snapshot->Counter(metric::kBucketSequences, labels, static_cast<double>(stats.sequences));
  snapshot->Histogram(metric::kBucketReplay, labels, kReplayBounds, stats.replays,
                      Seconds(stats.replay));
}

void AddBucket(const BucketStats& stats, const Labels& model, MetricSnapshot* snapshot) {
  const Labels labels = With(model, "bucket", BucketLabel(stats.bucket));
  AddCounts(stats, labels, snapshot);
  if (!stats.in_ladder) return;
  snapshot->Gauge(metric::kBucketCapacityTokens, labels, stats.bucket.tokens);
  snapshot->Gauge(metric::kBucketCapacityRows, labels, stats.bucket.sequences);
  snapshot->Gauge(metric::kBucketMemory, labels, static_cast<double>(stats.memory_bytes));
  snapshot->Gauge(metric::kBucketActivations, labels, static_cast<double>(stats.activation_bytes));
  snapshot->Gauge(metric::kBucketReady, labels, stats.ready ? 1 : 0);
  if (stats.batches > 0) snapshot->Gauge(metric::kBucketCost, labels, stats.cost_seconds);
}

void AddLadder(const ModelStats& stats, const Labels& labels, MetricSnapshot* snapshot) {
  const LadderChanges& changes = stats.ladder_changes;
  const auto changed = [&](const char* kind, int64_t count) {
    snapshot->Counter(metric::kLadderChanges, With(labels, "kind", kind),
                      static_cast<double>(count));
  };
  changed("added", changes.added);
  changed("removed", changes.removed);
  changed("merged", changes.merged);
  changed("split", changes.split);
  snapshot->Counter(metric::kLadderEvictions, labels, static_cast<double>(changes.evicted));
  snapshot->Counter(metric::kLadderReviews, labels, static_cast<double>(changes.reviews));
  snapshot->Gauge(metric::kMemoryOverhead, labels, Summarize(stats.buckets).memory_overhead);
  nanoseconds busy = stats.forgotten_buckets.replay;
  for (const BucketStats& bucket : stats.buckets) {
    AddBucket(bucket, labels, snapshot);
    busy += bucket.replay;
  }
  if (stats.forgotten_buckets.batches > 0) {
    AddCounts(stats.forgotten_buckets, With(labels, "bucket", "other"), snapshot);
  }
  snapshot->Counter(metric::kDeviceBusy, labels, Seconds(busy));
  snapshot->Gauge(metric::kDeviceRate, labels, stats.device_tokens_per_second);
}

void AddTraffic(const ModelStats& stats, const Labels& labels, MetricSnapshot* snapshot) {
  const TrafficStats& traffic = stats.traffic;
  snapshot->Gauge(metric::kShapeEntropy, labels, traffic.shape_entropy_bits);
  snapshot->Gauge(metric::kLengthEntropy, labels, traffic.length_entropy_bits);
  snapshot->Gauge(metric::kArrivalSequences, labels, traffic.arrivals.sequences_per_second);
  snapshot->Gauge(metric::kArrivalTokens, labels, traffic.arrivals.tokens_per_second);
  constexpr const char* kTerms[kCostTerms] = {
      "base",        "bucket_token",    "computed_token", "context_token", "distinct_position",
      "sampled_row", "distinct_adapter"};
  for (int i = 0; i < kCostTerms; ++i) {
    snapshot->Gauge(metric::kCostLaw, With(labels, "term", kTerms[i]), stats.costs.law[i]);
  }
}

void AddKv(const KvStats& kv, const Labels& labels, MetricSnapshot* snapshot) {
  const auto pages = [&](const char* state, int64_t count) {
    snapshot->Gauge(metric::kKvPages, With(labels, "state", state), static_cast<double>(count));
  };
  pages("held", kv.held);
  pages("idle", kv.idle);
  pages("free", kv.pages - kv.held - kv.idle);
  snapshot->Gauge(metric::kKvPageTokens, labels, static_cast<double>(kv.page_tokens));
  snapshot->Counter(metric::kKvEvicted, labels, static_cast<double>(kv.evicted));
  const auto prefix = [&](const char* result, int64_t tokens) {
    snapshot->Counter(metric::kPrefixTokens, With(labels, "result", result),
                      static_cast<double>(tokens));
  };
  prefix("hit", kv.reused_tokens);
  prefix("miss", kv.prefix_tokens - kv.reused_tokens);
  for (int kind = 0; kind < kDraftKinds; ++kind) {
    const Labels source = With(labels, "source", std::string(NameOf(static_cast<DraftKind>(kind))));
    const auto [drafted, accepted] = kv.drafts[kind];
    snapshot->Counter(metric::kDraftTokens, With(source, "result", "accepted"),
                      static_cast<double>(accepted));
    snapshot->Counter(metric::kDraftTokens, With(source, "result", "rejected"),
                      static_cast<double>(drafted - accepted));
  }
  snapshot->Counter(metric::kPreemptions, labels, static_cast<double>(kv.preemptions));
}

void AddAdapters(const AdapterTableStats& stats, const Labels& model, MetricSnapshot* snapshot) {
  if (stats.limit_bytes == 0) return;  // the model takes no adapters
  snapshot->Gauge(metric::kAdapterLimit, model, static_cast<double>(stats.limit_bytes));
  const auto add = [&](const AdapterStats& adapter, const std::string& name) {
    const Labels labels = With(model, "adapter", name);
    const auto counter = [&](const metric::Metric& metric, int64_t count) {
      snapshot->Counter(metric, labels, static_cast<double>(count));
    };
    counter(metric::kAdapterRequests, adapter.counts.requests);
    counter(metric::kAdapterTokens, adapter.counts.tokens);
    counter(metric::kAdapterLoads, adapter.counts.loads);
    counter(metric::kAdapterEvictions, adapter.counts.evictions);
    snapshot->Gauge(metric::kAdapterBytes, labels, static_cast<double>(adapter.bytes));
  };
  for (const AdapterStats& adapter : stats.named) add(adapter, adapter.name);
  add(stats.others, "(other)");  // not a valid name of an adapter
}

// The picker takes the series with the largest value, so there is one for all models.
void AddLoraRequests(std::span<const ModelStats> models, MetricSnapshot* snapshot) {
  std::string running, waiting;
  int64_t capacity = 0;
  for (const ModelStats& stats : models) {
    const auto append = [&](const std::vector<std::string>& names, std::string* list) {
      for (const std::string& name : names) {
        absl::StrAppend(list, list->empty() ? "" : ",", stats.model->name,
                        std::string(1, kAdapterSeparator), name);
      }
    };
    append(stats.adapters.loaded, &running);
    append(stats.adapters.waiting, &waiting);
    capacity += stats.adapters.capacity;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  snapshot->Gauge(metric::kLoraRequests,
                  {{"running_lora_adapters", running},
                   {"waiting_lora_adapters", waiting},
                   {"max_lora", absl::StrCat(capacity)}},
                  std::chrono::duration<double>(now).count());
}

void AddModel(const ModelStats& stats, const Labels& labels, MetricSnapshot* snapshot) {
  const auto gauge = [&](const metric::Metric& metric, auto value) {
    snapshot->Gauge(metric, labels, static_cast<double>(value));
  };
  gauge(metric::kWaiting, stats.waiting_requests);
  gauge(metric::kRunning, stats.running_requests);
  gauge(metric::kSequencesWaiting, stats.waiting_sequences);
  gauge(metric::kSequencesRunning, stats.running_sequences);
  gauge(metric::kQueuedTokens, stats.queued_tokens);
  gauge(metric::kQueueBytes, stats.queued_bytes);
  gauge(metric::kOldestAge, Seconds(stats.oldest_age));
  gauge(metric::kDrain, Seconds(stats.estimated_drain));
  gauge(metric::kPlanMemory, stats.plan_memory_bytes);
  gauge(metric::kTimeToReady, Seconds(stats.time_to_ready));
  snapshot->Counter(metric::kSteps, labels, static_cast<double>(stats.steps));
  const auto memory = [&](const char* state, int64_t bytes) {
    snapshot->Gauge(metric::kDeviceMemory, With(labels, "state", state),
                    static_cast<double>(bytes));
  };
  snapshot->Gauge(metric::kAttentionInfo,
                  With(labels, "variant", AttentionVariantName(stats.attention)), 1);
  memory("weights", stats.weight_bytes);
  memory("adapters", stats.adapters.bytes);
  memory("plans", stats.plan_memory_bytes);
  memory("activations", stats.slot_memory.activations);
  memory("head_graphs", stats.slot_memory.graphs);
  memory("kv", stats.slot_memory.kv);
  memory("pinned", stats.slot_memory.pinned);
  memory("mapped", stats.mapped_bytes);
  memory("copied", stats.copied_bytes);
  AddKv(stats.kv, labels, snapshot);
  AddAdapters(stats.adapters, labels, snapshot);
  AddLadder(stats, labels, snapshot);
  AddTraffic(stats, labels, snapshot);
}

}  // namespace

std::vector<prometheus::MetricFamily> EngineMetrics(const Engine& engine, int64_t log_dropped) {
  MetricSnapshot snapshot;
  snapshot.Counter(metric::kLogDropped, {}, static_cast<double>(log_dropped));
  const BackendInfo& backend = engine.backend_info();
  snapshot.Gauge(metric::kBackendInfo, {{"device", backend.device}, {"profile", backend.profile}},
                 1);
  const std::vector<ModelStats> models = engine.Stats();
  AddLoraRequests(models, &snapshot);
  for (const ModelStats& stats : models) {
    const Labels labels = {{"model", stats.model->name},
                           {"version", absl::StrCat(stats.model->version)},
                           {"device", backend.device}};
    AddModel(stats, labels, &snapshot);
  }
  return snapshot.Take();
}

}  // namespace sluice
