// Traces of arrivals: CSV with a heading that has the columns arrival_s, input_tokens and,
// optionally, output_tokens, in any order and among others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::load {

struct TraceRow {
  double arrival_s = 0;  // from the first row, not decreasing
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;  // 0 where the trace has no such column
};

// InvalidArgument names line and column: numbers must be finite, tokens in [0, 2^24], arrivals must
// not decrease, and there must be a row. At most 20 million rows of at most 64 KiB.
absl::StatusOr<std::vector<TraceRow>> ParseTrace(absl::string_view csv);

// A histogram of lengths: CSV with the columns tokens and count.
struct LengthCount {
  int32_t tokens = 0;
  double count = 0;
};

// InvalidArgument as for ParseTrace; counts are at least 0 and their sum is above 0.
absl::StatusOr<std::vector<LengthCount>> ParseLengthCounts(absl::string_view csv);

// NotFound or, above 1 GiB, InvalidArgument.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace sluice::load
