// Carries the conditions of einsums to the einsums that read their results.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cascades/einsum/cascade.h"

namespace sluice::einsum {

// The conditions of the points where results have values.
class ResultDomains {
 public:
  // Records the conditions of the einsum's result: the einsum's own that name no reduced rank.
  void Add(const Einsum& einsum);

  // Returns the conditions for the result at the access's indices; none for an input or a constant.
  // Leaves out a condition that cannot be written at these indices.
  std::vector<Condition> Of(const Access& access) const;

 private:
  struct Domain {
    std::vector<std::string> ranks;
    std::vector<Condition> where;
  };
  std::map<std::string, Domain> domains_;
};

// Returns the cascade with the conditions of its operands' values. If S[i, k] is computed
// only where k <= i, an einsum that reads S[p, m] gets the condition m <= p:
//
//   S[i, k] = A[i] . B[k] :: map x(and) where k <= i
//   Z[p] = S[p, m] :: reduce m +(or)                    becomes ... reduce m +(or) where m <= p
//
// No result changes, because such points have no value (interpreter.h). An einsum inherits the
// conditions of its only operand, of both operands of an `and`, of the left operand of a `left`,
// and those that both operands of an `or` have. A condition is not carried if it names a reduced
// rank, if its result is carried by an iteration, or if the reader's indices cannot express it (a
// multiple of `end`). Applying the function again changes nothing.
//
// Requires a cascade that Check accepts. Returns InvalidArgument, with the einsum, if an einsum
// gets more than kMaxConditions.
absl::StatusOr<Cascade> CarryConditions(Cascade cascade);

}  // namespace sluice::einsum
