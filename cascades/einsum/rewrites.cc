#include "cascades/einsum/rewrites.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice::einsum {

std::vector<Rule> AllRules(const RuleOptions& options) {
  std::vector<Rule> all;
  for (std::vector<Rule> rules : {SplitRules(), DivisionRules(), QuotientRules(), ScaleRules(),
                                  SoftmaxRules(options.partitions), XsaRules(options.own_value)}) {
    std::ranges::move(rules, std::back_inserter(all));
  }
  return all;
}

}  // namespace sluice::einsum
