// Reads the Prometheus text format.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::client {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value;
};

// Returns InvalidArgument that names the first line that is neither a comment nor a sample.
absl::StatusOr<std::vector<Sample>> ParseMetrics(absl::string_view text);

// Reads the samples from the metrics page of the server at HOST:PORT.
absl::StatusOr<std::vector<Sample>> FetchMetrics(const std::string& address);

// Returns the sum of the samples with that name and all of `labels`; 0 if there are none.
double SumOf(const std::vector<Sample>& samples, absl::string_view name,
             const std::map<std::string, std::string>& labels);

}  // namespace sluice::client
