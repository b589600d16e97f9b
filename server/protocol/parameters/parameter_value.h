// The value of one request parameter: numbers and flags in every form that clients may send.
//
// On error, each reading function leaves `out` unchanged and returns InvalidArgument ("parameter")
// that names the parameter, the value and the range.
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
  std::optional<absl::int128> integer;  // set if the number is an integer
};

// Reads an int64, uint64, double or decimal string. Returns nullopt if the value is not a finite
// number.
std::optional<Number> ReadNumber(const inference::InferParameter& value);

absl::Status ReadInteger(absl::string_view name, const inference::InferParameter& value,
                         int64_t min, int64_t max, int64_t* out);
absl::Status ReadInteger(absl::string_view name, const inference::InferParameter& value,
                         uint64_t* out);  // accepts every number of 64 bits

struct RealRange {
  double min;
  double max;
  bool above_min = false;  // excludes min, and values that round to it as a float
  bool zero_too = false;   // includes 0 as well
};
absl::Status ReadReal(absl::string_view name, const inference::InferParameter& value,
                      const RealRange& range, float* out);

// Reads a bool, or the number 0 or 1.
absl::Status ReadFlag(absl::string_view name, const inference::InferParameter& value, bool* out);

// Returns the error "parameter NAME is VALUE; expected EXPECTED".
absl::Status Expected(absl::string_view name, const inference::InferParameter& value,
                      absl::string_view expected);
// Returns the error "parameter NAME: PROBLEM", or "parameter NAME is ..." if the problem starts so.
absl::Status ParameterError(absl::string_view name, absl::string_view problem);

}  // namespace sluice
