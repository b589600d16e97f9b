#include "server/observe/metrics.h"

#include <array>
#include <atomic>
#include <functional>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/text_serializer.h"
#include "proto/metric_names.h"
#include "server/common/durations.h"
#include "server/common/status.h"

namespace sluice {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using SeriesLabels = prometheus::Labels;

constexpr int kCodes = 17;
constexpr int kTriggers = CountEnumerators<Trigger>();

// The bounds of histograms of durations, in steps of 1-2.5-5 from 0.1 ms. Generation may take
// minutes.
const Histogram::BucketBoundaries kShort = {1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2,
                                            5e-2, 0.1,    0.25, 0.5,  1,      2.5,  5,    10};
const Histogram::BucketBoundaries kLong = [] {
  Histogram::BucketBoundaries all = kShort;
  for (double more : {25.0, 50.0, 100.0, 250.0, 600.0}) all.push_back(more);
  return all;
}();

Histogram::BucketBoundaries PowersOfTwo(int last) {
  Histogram::BucketBoundaries powers;
  for (int i = 0; i <= last; ++i) powers.push_back(static_cast<double>(int64_t{1} << i));
  return powers;
}

SeriesLabels With(SeriesLabels labels, const std::string& name, std::string_view value) {
  labels[name] = std::string(value);
  return labels;
}

std::string_view StageOf(const RequestTrace& trace) {
  return trace.first_run == MonoTime{} ? "queue" : "run";
}

}  // namespace

struct Metrics::Families {
  explicit Families(prometheus::Registry* all) : registry(all) {}

  prometheus::Family<Counter>& AddCounter(const metric::Metric& metric) {
    return prometheus::BuildCounter().Name(metric.name).Help(metric.help).Register(*registry);
  }
  prometheus::Family<Gauge>& AddGauge(const metric::Metric& metric) {
    return prometheus::BuildGauge().Name(metric.name).Help(metric.help).Register(*registry);
  }
  prometheus::Family<Histogram>& AddHistogram(const metric::Metric& metric) {
    return prometheus::BuildHistogram().Name(metric.name).Help(metric.help).Register(*registry);
  }

  prometheus::Registry* const registry;
  prometheus::Family<Counter>& admitted = AddCounter(metric::kAdmitted);
  prometheus::Family<Counter>& requests = AddCounter(metric::kRequests);
  prometheus::Family<Counter>& rejected = AddCounter(metric::kRejected);
  prometheus::Family<Counter>& cancelled = AddCounter(metric::kCancelled);
  prometheus::Family<Counter>& deadline_missed = AddCounter(metric::kDeadlineMissed);
  prometheus::Family<Histogram>& request_duration = AddHistogram(metric::kRequestDuration);
  prometheus::Family<Histogram>& queue_duration = AddHistogram(metric::kQueueDuration);
  prometheus::Family<Histogram>& inference_duration = AddHistogram(metric::kInferenceDuration);
  prometheus::Family<Histogram>& first_token = AddHistogram(metric::kFirstToken);
  prometheus::Family<Histogram>& inter_token = AddHistogram(metric::kInterToken);
  prometheus::Family<Histogram>& stage_duration = AddHistogram(metric::kStageDuration);
  prometheus::Family<Counter>& tokens = AddCounter(metric::kTokens);
  prometheus::Family<Counter>& batches = AddCounter(metric::kBatches);
  prometheus::Family<Histogram>& batch_rows = AddHistogram(metric::kBatchRows);
  prometheus::Family<Histogram>& batch_tokens = AddHistogram(metric::kBatchTokens);
  prometheus::Family<Counter>& backend_errors = AddCounter(metric::kBackendErrors);
  prometheus::Family<Counter>& plan_lookups = AddCounter(metric::kPlanLookups);
  prometheus::Family<Counter>& plan_captures = AddCounter(metric::kPlanCaptures);
  prometheus::Family<Histogram>& plan_capture_seconds = AddHistogram(metric::kPlanCaptureSeconds);
  prometheus::Family<Gauge>& xsa_cos_sim = AddGauge(metric::kXsaCosSim);
  prometheus::Family<Gauge>& xsa_proj_frac = AddGauge(metric::kXsaProjFrac);
  prometheus::Family<Counter>& xsa_positions = AddCounter(metric::kXsaPositions);
  prometheus::Family<Counter>& reloads = AddCounter(metric::kReloads);
  // Created at the start, so that a reload that fails for lack of memory can be counted.
  Counter& reloads_ok = reloads.Add({{"result", "ok"}});
  Counter& reloads_failed = reloads.Add({{"result", "error"}});
  prometheus::Family<Counter>& loads = AddCounter(metric::kModelLoads);
  Counter& loads_ok = loads.Add({{"result", "ok"}});
  Counter& loads_failed = loads.Add({{"result", "error"}});
  // Created at the start, so that an increase is seen.
  prometheus::Family<Counter>& write_errors = AddCounter(metric::kFileWriteErrors);
  Counter& journal_errors = write_errors.Add({{"file", "journal"}});
  Counter& ladder_errors = write_errors.Add({{"file", "ladder"}});
  Counter& journal_lines = AddCounter(metric::kJournalLinesDropped).Add({});
  Gauge& reload_success = AddGauge(metric::kReloadSuccess).Add({});
  prometheus::Family<Gauge>& needs_restart = AddGauge(metric::kNeedsRestart);
  prometheus::Family<Gauge>& certificate_expiry = AddGauge(metric::kCertificateExpiry);
  prometheus::Family<Gauge>& secret_files_valid = AddGauge(metric::kSecretFilesValid);
  prometheus::Family<Counter>& secret_reads = AddCounter(metric::kSecretReads);
};

// Series that are removed when this object is destroyed. Thread-safe.
class Metrics::OwnSeries {
 public:
  OwnSeries() = default;
  OwnSeries(const OwnSeries&) = delete;
  OwnSeries& operator=(const OwnSeries&) = delete;
  ~OwnSeries() {
    for (const auto& [series, remove] : removals_) remove();
  }

  // Returns the series with these labels, and creates it if needed.
  template <typename T, typename... Arguments>
  T& Add(prometheus::Family<T>& family, const SeriesLabels& labels, const Arguments&... arguments) {
    T& series = family.Add(labels, arguments...);
    MutexLock lock(&mu_);
    if (const auto [place, made] = removals_.try_emplace(&series); made) {
      place->second = [&family, &series] { family.Remove(&series); };
    }
    return series;
  }

 private:
  Mutex mu_;
  absl::flat_hash_map<const void*, std::function<void()>> removals_ ABSL_GUARDED_BY(mu_);
};

// The counters of a model's refusals. The counters of the server's faults exist from the start, so
// that the first refusals are an increase, which alerts need. The others are created at the first
// refusal with their reasons. Thread-safe.
class Metrics::Refusals {
 public:
  Refusals(Families* families, std::string_view model) : families_(*families), model_(model) {
    for (const ReasonInfo& reason : kReasons) {
      if (reason.at_fault == AtFault::kServer) CounterOf(reason.reason);
    }
  }

  void Count(Reason reason) { CounterOf(reason).Increment(); }

 private:
  Counter& CounterOf(Reason reason) {
    MutexLock lock(&mu_);
    Counter*& counter = counters_[reason];
    if (counter == nullptr) {
      counter = &own_.Add(families_.rejected,
                          {{"model", model_}, {"reason", std::string(NameOf(reason))}});
    }
    return *counter;
  }

  Families& families_;
  const std::string model_;
  OwnSeries own_;
  Mutex mu_;
  std::map<Reason, Counter*> counters_ ABSL_GUARDED_BY(mu_);
};

// The sums of a layer's diagnostics.
struct XsaSums {
  double cos_sim = 0, proj_frac = 0;
  int64_t values = 0;

  void Add(const Reply& reply, int64_t layer, const ModelConfig& config) {
    int64_t begin = 0;  // start of the row's values
    for (const int32_t positions : reply.xsa_positions) {
      const int64_t count = positions * config.heads, first = begin + layer * count;
      for (int64_t i = first; i < first + count; ++i) {
        cos_sim += reply.xsa_cos_sim[i];
        proj_frac += reply.xsa_proj_frac[i];
      }
      values += count;
      begin += config.layers * count;
    }
  }
};

// The series of one model.
struct Metrics::Series {
  Series(Families* all, const SeriesLabels& base) : families(*all), labels(base) {
    for (int i = 0; i < kTriggers; ++i) {
      batches[i] = &own.Add(families.batches, With(base, "trigger", NameOf(Trigger{i})));
    }
    for (int i = 0; i < kLookups; ++i) {
      const bool hit = Lookup{i} == Lookup::kHit;
      const SeriesLabels result = With(base, "result", hit ? "hit" : "miss");
      lookups[i] =
          &own.Add(families.plan_lookups, With(result, "reason", hit ? "" : NameOf(Lookup{i})));
    }
    requests[0] = &own.Add(families.requests, With(base, "code", "OK"));
  }

  // Returns the counter of requests that ended with `code`. It is created at the first such
  // request, because most codes never occur.
  Counter& Requests(absl::StatusCode code) {
    std::atomic<Counter*>& cached = requests[static_cast<int>(code) % kCodes];
    Counter* counter = cached.load(std::memory_order_acquire);
    if (counter == nullptr) {
      counter = &own.Add(families.requests, With(labels, "code", absl::StatusCodeToString(code)));
      cached.store(counter, std::memory_order_release);
    }
    return *counter;
  }

  Histogram& Stage(std::string_view stage) {
    return own.Add(families.stage_duration, With(labels, "stage", stage), kShort);
  }

  Counter& Tokens(std::string_view kind) {
    return own.Add(families.tokens, With(labels, "kind", kind));
  }

  Families& families;
  const SeriesLabels labels;
  OwnSeries own;
  Counter& admitted = own.Add(families.admitted, labels);
  // Both exist from the start, so that the first failure is an increase.
  Counter& captures_ok = own.Add(families.plan_captures, With(labels, "result", "ok"));
  Counter& captures_failed = own.Add(families.plan_captures, With(labels, "result", "error"));
  std::array<std::atomic<Counter*>, kCodes> requests{};
  Histogram& request_duration = own.Add(families.request_duration, labels, kLong);
  Histogram& queue_duration = own.Add(families.queue_duration, labels, kShort);
  Histogram& inference_duration = own.Add(families.inference_duration, labels, kLong);
  Histogram& first_token = own.Add(families.first_token, labels, kLong);
  Histogram& inter_token = own.Add(families.inter_token, labels, kShort);
  Histogram& admit = Stage("admit");
  Histogram& form = Stage("form");
  Histogram& replay = Stage("replay");
  Histogram& deliver = Stage("deliver");
  Counter& useful = Tokens("useful");
  Counter& computed = Tokens("computed");
  Counter& bucket = Tokens("bucket");
  Histogram& batch_rows = own.Add(families.batch_rows, labels, PowersOfTwo(16));
  Histogram& batch_tokens = own.Add(families.batch_tokens, labels, PowersOfTwo(20));
  std::array<Counter*, kTriggers> batches;
  std::array<Counter*, kLookups> lookups;
  Mutex xsa_mu;
  std::vector<XsaSums> xsa ABSL_GUARDED_BY(xsa_mu);  // by layer; empty if no request asked for them
  Histogram& capture_seconds = own.Add(families.plan_capture_seconds, labels, kLong);
};

Metrics::Metrics(const std::string& device, const std::string& version)
    : device_(device), families_(std::make_unique<Families>(&registry_)) {
  families_->reload_success.Set(1);
  RefusalsOf("");  // of requests before the model is known
  prometheus::BuildGauge()
      .Name(metric::kBuildInfo.name)
      .Help(metric::kBuildInfo.help)
      .Register(registry_)
      .Add({{"version", version}})
      .Set(1);
}

Metrics::~Metrics() = default;

void Metrics::Retire(IsServed is_served, MonoTime now, nanoseconds keep) {
  series_.Retire(is_served, now, keep);
  // Refusals before the model is known have no name.
  refusals_.Retire([&](std::string_view name,
                       int64_t version) { return name.empty() || is_served(name, version); },
                   now, keep);
}

void Metrics::OnReload(bool ok, std::span<const std::string> needs_restart) {
  families_->reload_success.Set(ok ? 1 : 0);
  (ok ? families_->reloads_ok : families_->reloads_failed).Increment();
  if (!ok) return;
  const auto show = [&] {
    MutexLock lock(&reload_mu_);
    needs_restart_ = std::make_unique<OwnSeries>();  // removes the series of the previous reload
    for (const std::string& option : needs_restart) {
      needs_restart_->Add(families_->needs_restart, {{"option", option}}).Set(1);
    }
    return absl::OkStatus();
  };
  OrOutOfMemory(show).IgnoreError();
}

void Metrics::OnLoad(bool ok) { (ok ? families_->loads_ok : families_->loads_failed).Increment(); }

void Metrics::OnWriteFailed(WrittenFile file) {
  (file == WrittenFile::kJournal ? families_->journal_errors : families_->ladder_errors)
      .Increment();
}

void Metrics::OnJournalLinesLost(int64_t lines) {
  families_->journal_lines.Increment(static_cast<double>(lines));
}

void Metrics::OnSecretRead(std::string_view kind, bool ok) {
  families_->secret_files_valid.Add({{"kind", std::string(kind)}}).Set(ok ? 1 : 0);
  families_->secret_reads.Add({{"kind", std::string(kind)}, {"result", ok ? "ok" : "error"}})
      .Increment();
}

void Metrics::SetCertificateExpiry(std::chrono::system_clock::time_point expires) {
  families_->certificate_expiry.Add({}).Set(
      std::chrono::duration<double>(expires.time_since_epoch()).count());
}

std::shared_ptr<Metrics::Series> Metrics::For(const Model& model) {
  return series_.Get(model.name, model.version, [&] {
    RefusalsOf(model.name);
    return std::make_unique<Series>(
        families_.get(),
        SeriesLabels{
            {"model", model.name}, {"version", absl::StrCat(model.version)}, {"device", device_}});
  });
}

std::string Metrics::Render(std::vector<prometheus::MetricFamily> more) const {
  std::vector<prometheus::MetricFamily> all = registry_.Collect();
  std::move(more.begin(), more.end(), std::back_inserter(all));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, all);
  return text.str();
}

void Metrics::OnAdmitted(const Request& request) {
  For(*request.spec->model)->admitted.Increment();
}

std::shared_ptr<Metrics::Refusals> Metrics::RefusalsOf(std::string_view model) {
  return refusals_.Get(model, 0,
                       [&] { return std::make_unique<Refusals>(families_.get(), model); });
}

void Metrics::OnRejected(std::string_view model, Reason reason) {
  RefusalsOf(model)->Count(reason);
}

void Metrics::OnRequestDone(const Request& request, const absl::Status& status,
                            const RequestTrace& trace) {
  const std::shared_ptr<Series> held = For(*request.spec->model);
  Series& series = *held;
  series.Requests(status.code()).Increment();
  series.admit.Observe(Seconds(trace.queued - trace.received));
  if (status.code() == absl::StatusCode::kCancelled) {
    series.own.Add(families_->cancelled, With(series.labels, "stage", StageOf(trace))).Increment();
  } else if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    series.own.Add(families_->deadline_missed, With(series.labels, "stage", StageOf(trace)))
        .Increment();
  }
  if (!status.ok()) return;
  series.request_duration.Observe(Seconds(trace.done - trace.received));
  series.queue_duration.Observe(Seconds(trace.first_run - trace.queued));
  series.inference_duration.Observe(Seconds(trace.compute));
  if (trace.first_token == MonoTime{}) return;
  series.first_token.Observe(Seconds(trace.first_token - trace.received));
  if (const auto pause = InterTokenSeconds(request, trace)) series.inter_token.Observe(*pause);
}

void Metrics::OnBatch(const BatchTrace& trace) {
  const std::shared_ptr<Series> held = For(*trace.model);
  Series& series = *held;
  series.useful.Increment(static_cast<double>(trace.useful_tokens));
  series.computed.Increment(static_cast<double>(trace.computed_tokens));
  series.bucket.Increment(trace.bucket.tokens);
  series.batches[static_cast<int>(trace.trigger)]->Increment();
  series.lookups[static_cast<int>(trace.lookup)]->Increment();
  series.batch_rows.Observe(trace.sequences);
  series.batch_tokens.Observe(static_cast<double>(trace.useful_tokens));
  series.form.Observe(Seconds(trace.form));
  series.replay.Observe(Seconds(trace.replay));
  series.deliver.Observe(Seconds(trace.deliver));
}

void Metrics::OnDiagnostics(const Model& model, const Reply& reply) {
  const std::shared_ptr<Series> held = For(model);
  Series& series = *held;
  MutexLock lock(&series.xsa_mu);
  series.xsa.resize(model.config.layers);
  for (int64_t layer = 0; layer < model.config.layers; ++layer) {
    if (!model.config.xsa.layers[layer]) continue;
    series.xsa[layer].Add(reply, layer, model.config);
    const SeriesLabels labels = With(series.labels, "layer", absl::StrCat(layer));
    const auto values = static_cast<double>(series.xsa[layer].values);
    series.own.Add(families_->xsa_cos_sim, labels).Set(series.xsa[layer].cos_sim / values);
    series.own.Add(families_->xsa_proj_frac, labels).Set(series.xsa[layer].proj_frac / values);
  }
  int64_t positions = 0;
  for (const int32_t of_row : reply.xsa_positions) positions += of_row;
  series.own.Add(families_->xsa_positions, series.labels).Increment(static_cast<double>(positions));
}

void Metrics::OnNoPlan(const Model& model, Lookup lookup) {
  For(model)->lookups[static_cast<int>(lookup)]->Increment();
}

void Metrics::OnPlan(const PlanTrace& trace) {
  const std::shared_ptr<Series> held = For(*trace.model);
  Series& series = *held;
  (trace.ok ? series.captures_ok : series.captures_failed).Increment();
  series.capture_seconds.Observe(Seconds(trace.duration));
}

void Metrics::CountError(const Model& model, const std::string& kind) {
  const std::shared_ptr<Series> series = For(model);
  series->own.Add(families_->backend_errors, With(series->labels, "kind", kind)).Increment();
}

void Metrics::OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) {
  CountError(model, absl::AsciiStrToLower(absl::StatusCodeToString(status.code())));
}

void Metrics::OnHang(const Model& model, const Hang& hang) { CountError(model, "hang"); }

}  // namespace sluice
