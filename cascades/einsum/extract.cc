#include "cascades/einsum/extract.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"

namespace sluice::einsum {
namespace {

// Chooses a node for each class that the classes chosen before need, in every way.
class Chooser {
 public:
  Chooser(const EGraph& graph, TermPool& pool, TermId root, int64_t limit)
      : graph_(graph), pool_(pool), root_(graph.Find(root)), limit_(limit) {}

  Variants All() {
    Choose({root_});
    std::ranges::sort(found_);
    for (auto& [text, id] : found_) variants_.terms.push_back(id);
    return std::move(variants_);
  }

 private:
  // `open` are the classes without a node yet.
  void Choose(std::vector<TermId> open) {
    while (!open.empty() && chosen_.contains(open.back())) open.pop_back();
    if (open.empty()) {
      if (std::ssize(found_) == limit_) {
        variants_.complete = false;
        return;
      }
      std::map<TermId, TermId> built;
      const TermId term = Build(root_, &built);
      found_.emplace_back(TermText(pool_, term), term);
      return;
    }
    const TermId id = open.back();
    open.pop_back();
    for (const Term& node : graph_.NodesOf(id)) {
      if (node.kind == TermKind::kSplit || !variants_.complete) continue;
      if (Reaches(node.args, id)) continue;
      chosen_[id] = node;
      std::vector<TermId> next = open;
      for (const TermId arg : node.args) next.push_back(graph_.Find(arg));
      Choose(std::move(next));
      chosen_.erase(id);
    }
  }

  // Whether the nodes chosen so far lead from one of the classes to the other.
  bool Reaches(std::vector<TermId> open, TermId to) const {
    std::set<TermId> seen;
    while (!open.empty()) {
      const TermId from = graph_.Find(open.back());
      open.pop_back();
      if (from == to) return true;
      const auto found = chosen_.find(from);
      if (found == chosen_.end() || !seen.insert(from).second) continue;
      open.insert(open.end(), found->second.args.begin(), found->second.args.end());
    }
    return false;
  }

  TermId Build(TermId id, std::map<TermId, TermId>* built) {
    id = graph_.Find(id);
    if (const auto found = built->find(id); found != built->end()) return found->second;
    Term node = chosen_.at(id);
    for (TermId& arg : node.args) arg = Build(arg, built);
    return (*built)[id] = pool_.Add(std::move(node));
  }

  const EGraph& graph_;
  TermPool& pool_;
  TermId root_;
  int64_t limit_;
  std::map<TermId, Term> chosen_;  // the node of each class
  std::vector<std::pair<std::string, TermId>> found_;
  Variants variants_;
};

}  // namespace

Variants VariantsOf(const EGraph& graph, TermPool& pool, TermId id, int64_t limit) {
  return Chooser(graph, pool, id, limit).All();
}

PricedTerm Cheapest(const std::vector<TermId>& terms, const std::function<double(TermId)>& cost) {
  SLUICE_CHECK(!terms.empty());
  std::optional<PricedTerm> best;
  for (const TermId term : terms) {
    const double its_cost = cost(term);
    if (!best.has_value() || its_cost < best->cost) best = {term, its_cost};
  }
  return *best;
}

Optimized Optimize(TermPool& pool, TermId term, const std::vector<std::vector<Rule>>& stages,
                   int64_t limit, const std::function<double(TermId)>& cost) {
  Optimized result{.term = term};
  for (const std::vector<Rule>& rules : stages) {
    EGraph graph(&pool);
    const TermId root = graph.AddTerm(result.term);
    const Saturation saturation = graph.Saturate(rules, {});
    const Variants variants = VariantsOf(graph, pool, root, limit);
    result.compared += std::ssize(variants.terms);
    result.complete &= variants.complete && saturation.outcome == Outcome::kSaturated;
    const PricedTerm cheapest = Cheapest(variants.terms, cost);
    result.term = cheapest.term;
    result.cost = cheapest.cost;
  }
  return result;
}

std::vector<std::vector<Rule>> StagesOf(const RuleOptions& options) {
  const auto join = [](std::vector<Rule> rules, std::vector<Rule> more) {
    std::ranges::copy(more, std::back_inserter(rules));
    return rules;
  };
  return {ScaleRules(), join(DivisionRules(), XsaRules(options.own_value)),
          join(SplitRules(), SoftmaxRules(options.partitions))};
}

}  // namespace sluice::einsum
