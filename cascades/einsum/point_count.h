// Counts the points of an einsum's ranks that have a value.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

// The most steps of a PointCounter; a step takes a few nanoseconds. A step compares two sides of a
// condition at one place of the ranks that conditions name, except the largest of these ranks.
inline constexpr int64_t kMaxCountingSteps = int64_t{1} << 27;

// Counts the points of the einsums of one cascade. Equal conditions are counted once.
class PointCounter {
 public:
  // Neither is owned. `size_of` has the size of every rank.
  PointCounter(const Cascade& cascade, const Sizes& size_of)
      : cascade_(cascade), size_of_(size_of) {}

  // Returns the number of points that satisfy the conditions and lie within the shapes of the
  // operands with indices of more than one rank: the half of a square below a diagonal, a last
  // chunk's part. If conditions name more than 2^20 places of ranks, except the largest, it is the
  // number of all points. Returns InvalidArgument beyond kMaxCountingSteps in total.
  absl::StatusOr<double> Count(const Einsum& einsum);

 private:
  const Cascade& cascade_;
  const Sizes& size_of_;
  int64_t steps_ = 0;
  std::map<std::vector<int64_t>, double> known_;  // by the numbers of all inequalities
};

}  // namespace sluice::einsum
