// The access log: a trace observer that logs a line for each request in a sample.
#pragma once

#include <atomic>

#include "engine/observer.h"
#include "server/common/log.h"

namespace sluice {

// Thread-safe. Requests that failed because of a fault in the daemon (Internal) are always logged.
// The sample is random, so that no caller can choose whether its requests are logged.
class AccessLog final : public Observer {
 public:
  // `log` is not owned and outlives this object.
  AccessLog(double share, Log* log) : share_(share), log_(log) {}

  // Applies to requests that end from now on.
  void SetShare(double share) { share_ = share; }
  double share() const { return share_; }

  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;

 private:
  std::atomic<double> share_;
  Log* const log_;
};

}  // namespace sluice
