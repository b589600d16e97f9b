#include "engine/einsum/extract.h"

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
      const TermId term = Build(root_);
      found_.emplace_back(TermText(pool_, term), term);
      return;
    }
    const TermId id = open.back();
    open.pop_back();
    for (const Term& node : graph_.NodesOf(id)) {
      if (node.kind == TermKind::kSplit || !variants_.complete) continue;
      if (std::ranges::any_of(node.args, [&](TermId arg) { return Reaches(arg, id); })) continue;
      chosen_[id] = node;
      std::vector<TermId> next = open;
      for (const TermId arg : node.args) next.push_back(graph_.Find(arg));
      Choose(std::move(next));
      chosen_.erase(id);
    }
  }

  // Whether the nodes chosen so far lead from one class to the other.
  bool Reaches(TermId from, TermId to) const {
    from = graph_.Find(from);
    if (from == to) return true;
    const auto found = chosen_.find(from);
    return found != chosen_.end() &&
           std::ranges::any_of(found->second.args, [&](TermId arg) { return Reaches(arg, to); });
  }

  TermId Build(TermId id) {
    Term node = chosen_.at(graph_.Find(id));
    for (TermId& arg : node.args) arg = Build(arg);
    return pool_.Add(std::move(node));
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

TermId Cheapest(const std::vector<TermId>& terms, const std::function<double(TermId)>& cost) {
  SLUICE_CHECK(!terms.empty());
  TermId best = terms[0];
  double best_cost = cost(best);
  for (const TermId term : terms) {
    const double its_cost = cost(term);
    if (its_cost < best_cost) {
      best = term;
      best_cost = its_cost;
    }
  }
  return best;
}

Optimized Optimize(TermPool& pool, TermId term, const std::vector<std::vector<Rule>>& stages,
                   int64_t limit, const std::function<double(TermId)>& cost) {
  Optimized result{.term = term};
  for (const std::vector<Rule>& rules : stages) {
    EGraph graph(&pool);
    const TermId root = graph.AddTerm(result.term);
    const Saturation saturation = graph.Saturate(rules, {});
    const Variants variants = VariantsOf(graph, pool, root, limit);
    result.complete &= variants.complete && saturation.outcome == Outcome::kSaturated;
    result.term = Cheapest(variants.terms, cost);
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
