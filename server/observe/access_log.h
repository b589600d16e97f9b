// The access log: a trace observer that logs a line for each request in a sample.
#pragma once

#include <atomic>
#include <string_view>

#include "engine/observer.h"
#include "server/common/log.h"

namespace sluice {

// Returns whether the request with this id is in the sample. Every daemon gives the same answer for
// an id, so the logs of all daemons contain the same requests.
bool InSample(std::string_view id, double share);

// Thread-safe. Requests that failed because of a fault in the daemon (Internal) are always logged.
// Requests without an id are sampled by their time of arrival.
class AccessLog final : public Observer {
 public:
  // `log` is not owned and outlives this object.
  AccessLog(double share, Log* log) : share_(share), log_(log) {}

  // Applies to requests that end from now on.
  void SetShare(double share) { share_ = share; }

  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;

 private:
  std::atomic<double> share_;
  Log* const log_;
};

}  // namespace sluice
