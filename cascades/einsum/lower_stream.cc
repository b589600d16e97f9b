#include "cascades/einsum/lower_stream.h"

#include <limits>
#include <utility>

#include "cascades/einsum/lower_fuse.h"

namespace sluice::einsum {
namespace {

// Returns the access with another index in the carried rank, which is the last.
Access At(Access access, Index index) {
  access.indices.back() = std::move(index);
  return access;
}

}  // namespace

CarriedResults AppendCarried(const Access& local, const std::vector<std::string>& max_ranks,
                             const std::vector<StreamSum>& sums,
                             const std::function<std::string(const std::string&)>& new_name,
                             Iteration* iteration) {
  const Index end{.terms = {}, .end_of = iteration->rank};
  const Index next{.terms = {{iteration->rank}}, .offset = 1};
  const auto carried = [&](const std::string& base, std::vector<std::string> ranks) {
    ranks.push_back(iteration->rank);
    return AccessOf(new_name(base), ranks);
  };
  const auto start = [iteration](const Access& out, double value,
                                 std::vector<Condition> where = {}) {
    iteration->init.push_back(
        {.out = At(out, {}), .in = {{.tensor = {}, .constant = value}}, .where = std::move(where)});
  };
  const auto append = [iteration](Access out, Access a, Op op, Access b,
                                  Function unary = Function::kNone) {
    iteration->body.push_back({.out = std::move(out),
                               .in = {std::move(a), std::move(b)},
                               .map = op,
                               .map_merge = MergeOf(op),
                               .unary = unary});
  };
  const Access max = carried("R" + local.tensor, max_ranks);
  const Access correction = carried("E", max_ranks);
  const Access weight = carried("F", max_ranks);
  // The maximum begins without a value, and so do its correction and the corrected sums, until a
  // point of the rank has one. If it began with -inf, the correction at points without a value
  // would be exp(-inf - -inf), which is NaN.
  const Condition never{{.terms = {}, .offset = 1}, Comparison::kLessEqual, {}};
  start(max, -std::numeric_limits<double>::infinity(), {never});
  append(At(max, next), max, Op::kMax, local);
  append(correction, max, Op::kSubtract, At(max, next), Function::kExp);
  append(weight, local, Op::kSubtract, At(max, next), Function::kExp);
  CarriedResults results{.max = At(max, end), .sums = {}};
  for (const StreamSum& stream : sums) {
    const bool is_one = stream.part == Access{.tensor = {}, .constant = 1};
    const std::string name = is_one ? weight.tensor : stream.part.tensor;
    const Access sum = carried("R" + name, stream.ranks);
    const Access kept = carried("T" + name, stream.ranks);
    start(sum, 0);
    append(kept, sum, Op::kMultiply, correction);
    Access added = weight;
    if (!is_one) {
      added = carried("U" + name, stream.ranks);
      append(added, stream.part, Op::kMultiply, weight);
    }
    append(At(sum, next), kept, Op::kAdd, added);
    results.sums.push_back(At(sum, end));
  }
  return results;
}

}  // namespace sluice::einsum
