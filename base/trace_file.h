// Reads traces of arrivals. They are CSV with a heading that has the columns arrival_s,
// input_tokens and, optionally, output_tokens, in any order and among others; or JSON lines as in
// the traces of Mooncake, objects with timestamp (in milliseconds), input_length and, optionally,
// output_length.
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
// [0, 2^24], arrivals must not decrease, and there must be a row. Returns InvalidArgument that
// names line and column.
absl::StatusOr<std::vector<TraceRow>> ParseTrace(absl::string_view text);

// Returns the rows as JSON lines in the form of Mooncake's traces, with times in milliseconds. Each
// block of 512 input tokens has a hash of its own: no prompts begin alike.
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
