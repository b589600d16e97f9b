// The access log: an observer of traces that logs a line for each request of a sample.
#pragma once

#include <atomic>
#include <string_view>

#include "engine/observer.h"
#include "server/common/log.h"

namespace sluice {

// Returns whether the request with this id is in the sample. The answer for an id is always the
// same on every daemon, so either every log or none has the lines of one request.
bool InSample(std::string_view id, double share);

// Thread-safe. Requests that failed through a fault of the daemon (Internal) are always logged.
// Requests without an id are sampled by their time of arrival.
class AccessLog final : public Observer {
 public:
  // `log` is not owned and outlives this object.
  AccessLog(double share, Log* log) : share_(share), log_(log) {}

  // The new share holds for requests that end from now on.
  void SetShare(double share) { share_ = share; }

  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;

 private:
  std::atomic<double> share_;
  Log* const log_;
};

}  // namespace sluice
