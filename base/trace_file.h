// Reads traces of arrivals. A trace is CSV or JSON lines. CSV has a heading with the columns
// arrival_s, input_tokens and, optionally, output_tokens, in any order; other columns are ignored.
// JSON lines have the format of Mooncake's traces: objects with timestamp (in milliseconds),
// input_length and, optionally, output_length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

struct TraceRow {
  double arrival_s = 0;  // counted from the first row; does not decrease
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;  // 0 if the trace has no such column
};

// Parses a trace of at most 20 million rows of at most 64 KiB. Numbers must be finite, tokens in
// [0, 2^24], and arrivals must not decrease. An empty trace is an error. Returns InvalidArgument
// that names line and column.
absl::StatusOr<std::vector<TraceRow>> ParseTrace(absl::string_view text);

// Returns the rows as JSON lines in the format of Mooncake's traces, with times in milliseconds.
// Each block of 512 input tokens has a unique hash: no two prompts share a prefix.
std::string FormatJsonLines(const std::vector<TraceRow>& rows);

// Returns the rows as CSV with the columns that ParseTrace reads.
std::string FormatCsv(const std::vector<TraceRow>& rows);

// An entry of a histogram of lengths, which is CSV with the columns tokens and count.
struct LengthCount {
  int32_t tokens = 0;
  double count = 0;
};

// Parses a histogram. Counts are at least 0 and their sum is above 0. Returns InvalidArgument as
// ParseTrace does.
absl::StatusOr<std::vector<LengthCount>> ParseLengthCounts(absl::string_view csv);

}  // namespace sluice
