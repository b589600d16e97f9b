// The iteration that computes streams: the running maximum, its correction and the running sums.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cascades/einsum/cascade.h"

namespace sluice::einsum {

struct StreamSum {
  Access part;                     // the summand at each point of the rank
  std::vector<std::string> ranks;  // of the sum
};

struct CarriedResults {
  Access max;
  std::vector<Access> sums;
};

// Appends the statements for the sums over the iteration's rank of exp(local - max of local) x
// part, and returns where the values are at its end. They have a value if a point of the rank has
// one. `new_name` returns an unused name that starts with its argument.
CarriedResults AppendCarried(const Access& local, const std::vector<std::string>& max_ranks,
                             const std::vector<StreamSum>& sums,
                             const std::function<std::string(const std::string&)>& new_name,
                             Iteration* iteration);

}  // namespace sluice::einsum
