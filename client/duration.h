// Reads durations of flags and of request lines.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/option_value.h"

namespace sluice::client {

// A kind of value as those in base/option_value.h. The text has its unit, so that 1 is taken
// neither for a second nor for a microsecond; 0 needs none.
struct DurationWithUnit {
  int64_t min_us;
  int64_t max_us;

  std::string Expected() const {
    return absl::StrCat("a duration in [", FormatQuantity(min_us, Unit::kMicroseconds), ", ",
                        FormatQuantity(max_us, Unit::kMicroseconds),
                        "] with its unit: us, ms, s, min or h");
  }

  bool Parse(absl::string_view text, int64_t* microseconds) const {
    const bool has_unit = !text.empty() && absl::ascii_isalpha(text.back());
    if (!has_unit && text != "0") return false;
    return Integer{min_us, max_us, Unit::kMicroseconds}.Parse(text, microseconds);
  }
};

}  // namespace sluice::client
