// How long the requests are.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "loadtest/trace/trace_file.h"

namespace sluice::load {

// A source of lengths in tokens, each in [1, cap].
class Lengths {
 public:
  virtual ~Lengths() = default;
  virtual int32_t Next(std::mt19937_64& random) = 0;
};

// What a specification may say, for a help text.
extern const char kLengthsHelp[];

// `spec` is one of
//   fixed:N            every request has N tokens
//   uniform:LOW:HIGH   all lengths from LOW to HIGH alike
//   lognormal:M:S      median M, S the standard deviation of the logarithm
//   zipf:S             P(n) proportional to n^-S for n from 1 to the cap
//   recommendation     user histories: lognormal:60:1.1, and what would exceed the cap is cut to
//                      it, which puts a spike at the cap
//   file:PATH          drawn from a histogram, see ParseLengthCounts
// Longer lengths are cut to `cap` (at least 1), shorter ones raised to 1. InvalidArgument says what
// is wrong.
absl::StatusOr<std::unique_ptr<Lengths>> MakeLengths(absl::string_view spec, int32_t cap);

}  // namespace sluice::load
