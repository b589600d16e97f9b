#include "loadtest/load/daemon_metrics.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/http_get.h"
#include "client/metrics_text.h"

namespace sluice::load {
namespace {

constexpr std::chrono::seconds kReadingInterval{1};

using client::Sample;
using client::SumOf;

std::string Label(const Sample& sample, const std::string& name) {
  const auto found = sample.labels.find(name);
  return found == sample.labels.end() ? "" : found->second;
}

void ReadBuckets(const std::vector<Sample>& samples, const std::string& model, Reading& reading) {
  std::map<std::string, std::map<std::string, double>> tokens;  // by bucket and kind
  for (const Sample& sample : samples) {
    constexpr absl::string_view kPrefix = "sluice_bucket_";
    if (sample.name.rfind(std::string(kPrefix), 0) != 0 || Label(sample, "model") != model)
      continue;
    const std::string name = sample.name.substr(kPrefix.size());
    const std::string id = Label(sample, "bucket");
    if (id == "other") continue;  // the sums of buckets that left the ladder long ago
    BucketShare& bucket = reading.buckets[id];
    bucket.bucket = id;
    if (name == "capacity_tokens") bucket.tokens = sample.value;
    if (name == "batches_total") bucket.batches += sample.value;
    if (name == "tokens_total") tokens[id][Label(sample, "kind")] = sample.value;
  }
  for (auto& [id, kinds] : tokens) {
    if (kinds["capacity"] > 0)
      reading.buckets[id].bucket_fill = kinds["useful"] / kinds["capacity"];
  }
}

}  // namespace

absl::StatusOr<Reading> ParseReading(const std::string& page, const std::string& model) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Sample> samples, client::ParseMetrics(page));
  const auto sum = [&](absl::string_view name, std::map<std::string, std::string> labels = {}) {
    labels["model"] = model;
    return SumOf(samples, name, labels);
  };
  if (SumOf(samples, "sluice_build_info", {}) == 0) {
    return absl::InvalidArgumentError("this is not a metrics page of sluiced");
  }
  Reading reading;
  reading.waiting = sum("sluice_requests_waiting");
  reading.running = sum("sluice_requests_running");
  reading.queued_tokens = sum("sluice_queued_tokens");
  reading.useful_tokens = sum("sluice_tokens_total", {{"kind", "useful"}});
  reading.computed_tokens = sum("sluice_tokens_total", {{"kind", "computed"}});
  reading.bucket_tokens = sum("sluice_tokens_total", {{"kind", "bucket"}});
  reading.batches = sum("sluice_batches_total");
  reading.ok = sum("sluice_requests_total", {{"code", "OK"}});
  reading.other = sum("sluice_requests_total") - reading.ok;
  reading.rejected = sum("sluice_rejected_total");
  reading.captures = SumOf(samples, "sluice_plan_captures_total", {});
  reading.reused_tokens = sum("sluice_prefix_tokens_total", {{"result", "hit"}});
  reading.prompt_tokens = sum("sluice_prefix_tokens_total");
  ReadBuckets(samples, model, reading);
  return reading;
}

absl::StatusOr<Reading> ReadMetrics(const std::string& address, const std::string& model) {
  SLUICE_ASSIGN_OR_RETURN(const std::string page,
                          client::HttpGet(address, "/metrics", absl::Seconds(5)));
  return ParseReading(page, model);
}

MetricsWatch::MetricsWatch(std::string address, std::string model)
    : address_(std::move(address)),
      model_(std::move(model)),
      start_(Clock::Real()->Now()),
      first_(Take()) {
  thread_.emplace(Clock::Real(), start_ + kReadingInterval,
                  [this, next = start_ + kReadingInterval]() mutable {
                    Take().IgnoreError();
                    return next += kReadingInterval;
                  });
}

absl::StatusOr<std::vector<Reading>> MetricsWatch::Stop() {
  thread_.reset();
  absl::Status status = first_;
  status.Update(Take());
  SLUICE_RETURN_IF_ERROR(status);
  return std::move(readings_);
}

absl::Status MetricsWatch::Take() {
  const double at_s = Seconds(Clock::Real()->Now() - start_);
  SLUICE_ASSIGN_OR_RETURN(Reading reading, ReadMetrics(address_, model_));
  reading.at_s = at_s;
  readings_.push_back(std::move(reading));
  return absl::OkStatus();
}

Reconciliation Reconcile(const Reading& first, const Reading& last, int64_t client_ok,
                         int64_t client_other) {
  Reconciliation counts;
  counts.client_ok = client_ok;
  counts.client_other = client_other;
  counts.server_ok = std::llround(last.ok - first.ok);
  counts.server_other = std::llround(last.other - first.other);
  counts.server_rejected = std::llround(last.rejected - first.rejected);
  return counts;
}

}  // namespace sluice::load
