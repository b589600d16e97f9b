// Sample sequence lengths from a text.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::client {

struct LengthsFormat {
  std::string column;  // of comma-separated lines: number from 1, or name in the first line; empty:
                       // a line is a length
  int32_t maximum = 0;  // lengths are in [1, maximum]
  bool clip = false;    // a longer one is taken for the maximum instead of an error
};

// At least one, at most 2^24, in order. Blank lines are left out. A first line without a number, a
// heading, is left out too. InvalidArgument "NAME:LINE: PROBLEM".
absl::StatusOr<std::vector<int32_t>> ReadLengths(std::istream* in, const std::string& name,
                                                 const LengthsFormat& format);

}  // namespace sluice::client
