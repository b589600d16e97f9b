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

  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;

 private:
  const double share_;
  Log* const log_;
};

}  // namespace sluice
