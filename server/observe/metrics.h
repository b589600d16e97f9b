// Prometheus metrics: a trace observer, and the text of /metrics. metric_names.h has the names.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "engine/observer.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "server/common/per_model.h"

namespace sluice {

// Thread-safe. Handles to a model's series are cached when the model is first seen, because
// Family::Add costs more than counting.
class Metrics final : public Observer {
 public:
  // `device` is a label of all metrics of models; `version` is the version of the daemon.
  Metrics(const std::string& device, const std::string& version);
  ~Metrics() override;

  // Returns the metrics of this object and `more`, in the Prometheus text format, version 0.0.4.
  std::string Render(std::vector<prometheus::MetricFamily> more) const;

  void OnAdmitted(const Request& request) override;
  void OnRejected(std::string_view model, Reason reason) override;
  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;
  void OnBatch(const BatchTrace& trace) override;
  void OnDiagnostics(const Model& model, const Reply& reply) override;
  void OnPlan(const PlanTrace& trace) override;
  void OnNoPlan(const Model& model, Lookup lookup) override;
  void OnWriteFailed(WrittenFile file) override;
  void OnJournalLinesLost(int64_t lines) override;
  void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) override;
  void OnHang(const Model& model, const Hang& hang) override;
  // Drops the series of models in the same way as PerModel::Retire.
  void Retire(IsServed is_served, MonoTime now, nanoseconds keep);
  // Counts a reload. `needs_restart` are the changed options that it did not apply; after a failed
  // reload, the options of the previous one stay.
  void OnReload(bool ok, std::span<const std::string> needs_restart = {});
  // Counts an attempt to load models.
  void OnLoad(bool ok);
  // Counts a check of secret files, and keeps its outcome. `kind` is "certificate" or "callers".
  void OnSecretRead(std::string_view kind, bool ok);
  void SetCertificateExpiry(std::chrono::system_clock::time_point expires);

 private:
  struct Families;
  class OwnSeries;
  class Refusals;
  struct Series;

  std::shared_ptr<Series> For(const Model& model);
  std::shared_ptr<Refusals> RefusalsOf(std::string_view model);
  void CountError(const Model& model, const std::string& kind);

  const std::string device_;
  prometheus::Registry registry_;
  const std::unique_ptr<Families> families_;
  PerModel<Series> series_;
  PerModel<Refusals> refusals_;  // by name only; the version is 0

  Mutex reload_mu_;
  std::unique_ptr<OwnSeries> needs_restart_ ABSL_GUARDED_BY(reload_mu_);
};

}  // namespace sluice
