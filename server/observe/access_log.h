// A line for a sample of the requests, as an observer of traces.
#pragma once

#include <string_view>

#include "engine/observer.h"
#include "server/common/log.h"

namespace sluice {

// Whether the request with this id is in the sample: the same for the same id everywhere and
// always, so that the lines of one request are found in every log or in none.
bool InSample(std::string_view id, double share);

// Thread-safe. Requests that failed through a fault of ours (Internal) are always written. Requests
// without id are sampled by their time of arrival.
class AccessLog final : public Observer {
 public:
  AccessLog(double share, Log* log) : share_(share), log_(log) {}

  void OnAdmitted(const Request& request) override {}
  void OnRejected(std::string_view model, Rejection reason) override {}
  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;
  void OnBatch(const BatchTrace& trace) override {}
  void OnPlan(const PlanTrace& trace) override {}
  void OnReview(const Model& model, const OptimizeReport& report) override {}

 private:
  const double share_;
  Log* const log_;
};

}  // namespace sluice
