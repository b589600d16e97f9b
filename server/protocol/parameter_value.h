// One request parameter's value: numbers and flags in whatever form a client could send them.
//
// On error each function that reads leaves `out` alone and returns InvalidArgument ("parameter")
// that names parameter, value and range.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"

namespace sluice {

struct Number {
  double real;                          // finite
  std::optional<absl::int128> integer;  // when it is one
};

// Reads an int64, uint64, double or decimal string; nullopt if that is not a finite number.
std::optional<Number> ReadNumber(const inference::InferParameter& value);

absl::Status ReadInteger(absl::string_view name, const inference::InferParameter& value,
                         int64_t min, int64_t max, int64_t* out);
absl::Status ReadInteger(absl::string_view name, const inference::InferParameter& value,
                         uint64_t* out);  // every number of 64 bits

struct RealRange {
  double min;
  double max;
  bool above_min = false;  // min itself is out of range, and so is what rounds to it as a float
  bool zero_too = false;   // 0 is in range as well
};
absl::Status ReadReal(absl::string_view name, const inference::InferParameter& value,
                      const RealRange& range, float* out);

// Reads a bool, 0 or 1.
absl::Status ReadFlag(absl::string_view name, const inference::InferParameter& value, bool* out);

// "parameter NAME is VALUE; expected EXPECTED"
absl::Status Expected(absl::string_view name, const inference::InferParameter& value,
                      absl::string_view expected);
// "parameter NAME: PROBLEM"
absl::Status ParameterError(absl::string_view name, absl::string_view problem);

}  // namespace sluice
