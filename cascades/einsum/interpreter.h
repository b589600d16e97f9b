// Runs a cascade on dense tensors in double, point by point. It is the reference for rewrites.
//
//   const auto results = Interpret(cascade, {{"tokens", 2}, {"context", 5}}, {{"K", keys}});
//   if (results.ok()) Use(results->at("Y").values);
//
// A point of a tensor may have no value: a point outside the tensor's shape, or a point of a result
// without a visited part (each part had no value or was excluded by a condition). Later einsums
// skip points without a value, depending on Merge:
//   and   the point is skipped unless both operands have a value
//   or    the value of the only present operand is used
//   left  the point is skipped unless the left operand has a value; if the right one has none, the
//         left value is used
//   all   a missing value counts as 0
// A reduction skips points without a value; with `all` they count as 0. Reductions visit the points
// in ascending order, the last rank first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cascades/einsum/cascade.h"

namespace sluice::einsum {

// The size of each symbol.
using Sizes = absl::flat_hash_map<std::string, int64_t>;

// Returns the rank's size. Returns InvalidArgument if its symbol has no size or one outside
// 1 ... kMaxNumber.
absl::StatusOr<int64_t> SizeOf(const Rank& rank, const Sizes& sizes);

// A tensor in row-major order. A point without a value has the initial value of its reduction (0
// for +, 1 for x, -inf for max, inf for min), or 0 without a reduction.
struct Values {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

using NamedValues = absl::flat_hash_map<std::string, Values>;

// The most points that Interpret visits in total, and the most values of its results in total.
inline constexpr int64_t kMaxPoints = int64_t{1} << 26;

// Returns all results of the cascade; results of an iteration have all places of its rank. Returns
// InvalidArgument if the cascade is wrong, or an input is missing or has another shape. Returns
// ResourceExhausted, with the einsum, beyond kMaxPoints.
absl::StatusOr<NamedValues> Interpret(const Cascade& cascade, const Sizes& sizes,
                                      const NamedValues& inputs);

}  // namespace sluice::einsum
