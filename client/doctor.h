// Finds problems of a server, for `sluice doctor`. The function is pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/metrics_text.h"
#include "proto/admin.pb.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// The server's answers, or the errors of the calls.
struct Observation {
  std::string server;  // the addresses that were called
  std::string metrics_address;
  std::string admin_address;
  absl::StatusOr<bool> ready;  // whether the server reports that it is ready
  std::string hint{};          // what to change if the server does not answer
  absl::StatusOr<inference::RepositoryIndexResponse> index;
  bool full_reasons = true;  // false if the index hides why a model is not served
  absl::StatusOr<std::vector<Sample>> metrics;
  absl::Status same_metrics{};  // the error of CheckSameMetrics
  absl::Status same_daemon{};   // the error of CheckSameDaemon
  absl::StatusOr<admin::v1::GetBucketsResponse> buckets;
  double now_seconds = 0;  // since 1970, for the expiry of certificates
  std::string client_version;
};

struct Finding {
  enum class Level { kGood, kAdvice, kBad };
  Level level;
  std::string what;    // the observation, with its figure
  std::string todo{};  // what to do; empty if all is well
};

// Returns a finding for each subject that was checked, in a fixed order.
std::vector<Finding> Diagnose(const Observation& observation);

// Returns the findings as wrapped text, and a last line that counts them.
std::string DiagnosisText(const std::vector<Finding>& findings);

}  // namespace sluice::client
