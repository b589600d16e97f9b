// How many points of an einsum's ranks have a value.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

// The most steps that a PointCounter takes, of a nanosecond or a few each. A step compares two
// sides of a condition at one place of the ranks that conditions name, save the largest of these.
inline constexpr int64_t kMaxCountingSteps = int64_t{1} << 27;

// Counts the points of the einsums of one cascade. Equal conditions are counted once.
class PointCounter {
 public:
  // Neither is owned. `size_of` has the size of every rank.
  PointCounter(const Cascade& cascade, const Sizes& size_of)
      : cascade_(cascade), size_of_(size_of) {}

  // Returns the number of points at which the conditions hold and the operands with indices of
  // more than one rank are within their shapes: the half of a square below a diagonal, a last
  // chunk's part. Where conditions name more than 2^20 places of ranks, save the largest, it is the
  // number of all points. Returns InvalidArgument beyond kMaxCountingSteps in all.
  absl::StatusOr<double> Count(const Einsum& einsum);

 private:
  const Cascade& cascade_;
  const Sizes& size_of_;
  int64_t steps_ = 0;
  std::map<std::vector<int64_t>, double> known_;  // by the numbers of all inequalities
};

}  // namespace sluice::einsum
