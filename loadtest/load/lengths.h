// Draws the lengths of the requests.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/trace_file.h"

namespace sluice::load {

// A source of lengths in tokens, each in [1, cap].
class Lengths {
 public:
  virtual ~Lengths() = default;
  virtual int32_t Next(std::mt19937_64& random) = 0;
};

// Describes the specifications for a help text.
extern const char kLengthsHelp[];

// Returns the source of lengths that `spec` describes, which is one of
//   fixed:N            every request has N tokens
//   uniform:LOW:HIGH   all lengths from LOW to HIGH with equal probability
//   lognormal:M:S      median M, S the standard deviation of the logarithm
//   zipf:S             P(n) proportional to n^-S for n from 1 to the cap
//   recommendation     user histories: lognormal:60:1.1, with a spike at the cap
//   file:PATH          drawn from a histogram, see ParseLengthCounts
// Lengths above `cap`, which is at least 1, are reduced to it, and lengths below 1 are raised to 1.
// Returns InvalidArgument that names the problem.
absl::StatusOr<std::unique_ptr<Lengths>> MakeLengths(absl::string_view spec, int32_t cap);

}  // namespace sluice::load
