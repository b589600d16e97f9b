// Reads sample sequence lengths from a text.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::client {

struct LengthsFormat {
  // The column of comma-separated lines: a number from 1, or a name in the first line. Empty if
  // each line is just a length.
  std::string column;
  int32_t maximum = 0;  // the largest length; the smallest is 1
  bool clip = false;    // reduce longer ones to the maximum; otherwise they are errors
};

// Returns the lengths in order, between 1 and 2^24 of them. Skips blank lines and a first line
// without a number, which is a heading. Returns InvalidArgument "NAME:LINE: PROBLEM".
absl::StatusOr<std::vector<int32_t>> ReadLengths(std::istream* in, const std::string& name,
                                                 const LengthsFormat& format);

}  // namespace sluice::client
