#include "server/engine_collector.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/metric_names.h"

namespace sluice {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Families in the order of their first sample.
class Snapshot {
 public:
  void Gauge(const metric::Metric& metric, const Labels& labels, double value) {
    Add(metric, MetricType::Gauge, labels).gauge.value = value;
  }
  void Counter(const metric::Metric& metric, const Labels& labels, double value) {
    Add(metric, MetricType::Counter, labels).counter.value = value;
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  ClientMetric& Add(const metric::Metric& metric, MetricType type, const Labels& labels) {
    size_t at = 0;
    while (at < families_.size() && families_[at].name != metric.name) ++at;
    if (at == families_.size()) families_.push_back({metric.name, metric.help, type, {}});
    families_[at].metric.emplace_back().label = labels;
    return families_[at].metric.back();
  }

  std::vector<MetricFamily> families_;
};

double Seconds(nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

Labels With(Labels labels, const std::string& name, const std::string& value) {
  labels.push_back({name, value});
  return labels;
}

double Ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

void AddBucket(const BucketStats& stats, const Labels& model, Snapshot* snapshot) {
  const Labels labels =
      With(model, "bucket", absl::StrCat(stats.bucket.tokens, "x", stats.bucket.sequences));
  snapshot->Gauge(metric::kBucketTokens, labels, stats.bucket.tokens);
  snapshot->Gauge(metric::kBucketRows, labels, stats.bucket.sequences);
  snapshot->Counter(metric::kBucketBatches, labels, static_cast<double>(stats.batches));
  if (stats.batches == 0) return;
  snapshot->Gauge(metric::kBucketPadding, labels, Ratio(stats.useful_tokens, stats.bucket_tokens));
  snapshot->Gauge(metric::kBucketRowPadding, labels,
                  Ratio(stats.sequences, stats.batches * stats.bucket.sequences));
  snapshot->Gauge(metric::kBucketExecuted, labels,
                  Ratio(stats.useful_tokens, stats.computed_tokens));
  snapshot->Gauge(metric::kBucketHits, labels, Ratio(stats.hits, stats.batches));
  snapshot->Gauge(metric::kBucketCost, labels, stats.cost_seconds);
}

void AddModel(const ModelStats& stats, const Labels& labels, Snapshot* snapshot) {
  const auto gauge = [&](const metric::Metric& metric, auto value) {
    snapshot->Gauge(metric, labels, static_cast<double>(value));
  };
  gauge(metric::kWaiting, stats.waiting_requests);
  gauge(metric::kRunning, stats.running_requests);
  gauge(metric::kQueuedTokens, stats.queued_tokens);
  gauge(metric::kQueueBytes, stats.queued_bytes);
  gauge(metric::kOldestAge, Seconds(stats.oldest_age));
  gauge(metric::kDrain, Seconds(stats.estimated_drain));
  gauge(metric::kPlanMemory, stats.plan_memory_bytes);
  snapshot->Counter(metric::kSteps, labels, static_cast<double>(stats.steps));
  const auto memory = [&](const char* state, int64_t bytes) {
    snapshot->Gauge(metric::kDeviceMemory, With(labels, "state", state),
                    static_cast<double>(bytes));
  };
  memory("weights", stats.weight_bytes);
  memory("plans", stats.plan_memory_bytes);
  memory("slots", stats.slot_memory_bytes);
  for (const BucketStats& bucket : stats.buckets) AddBucket(bucket, labels, snapshot);
}

}  // namespace

std::vector<MetricFamily> EngineCollector::Collect() const {
  Snapshot snapshot;
  snapshot.Counter(metric::kLogDropped, {}, static_cast<double>(log_dropped_()));
  const std::string& device = engine_->backend_info().device;
  for (const ModelStats& stats : engine_->Stats()) {
    const Labels labels = {{"model", stats.model->name},
                           {"version", absl::StrCat(stats.model->version)},
                           {"device", device}};
    AddModel(stats, labels, &snapshot);
  }
  return snapshot.Take();
}

}  // namespace sluice
