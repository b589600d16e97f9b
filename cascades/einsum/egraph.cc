#include "cascades/einsum/egraph.h"

#include <utility>

#include "base/check.h"

namespace sluice::einsum {

TermId EGraph::AddTerm(TermId term) {
  std::map<TermId, TermId> classes;
  const auto add = [&](const auto& self, TermId id) -> TermId {
    if (const auto found = classes.find(id); found != classes.end()) return found->second;
    Term node = pool_->TermOf(id);
    for (TermId& arg : node.args) arg = self(self, arg);
    return classes[id] = Add(std::move(node));
  };
  return add(add, term);
}

Saturation EGraph::Saturate(const std::vector<Rule>& rules, const SaturationLimits& limits) {
  Saturation result{Outcome::kIterationLimit, 0, std::ssize(ids_)};
  while (result.iterations < limits.iterations) {
    const std::map<TermId, std::vector<Term>> before = nodes_;
    std::vector<std::pair<TermId, TermId>> equal;
    for (const auto& [id, nodes] : before) {
      for (const Term& node : nodes) {
        for (const Rule& rule : rules) {
          for (const TermId other : rule.apply(*this, node)) equal.emplace_back(id, other);
          result.nodes = std::ssize(ids_);
          if (result.nodes > limits.nodes) {
            result.outcome = Outcome::kNodeLimit;
            Rebuild();
            return result;
          }
        }
      }
    }
    bool changed = false;
    for (const auto& [a, b] : equal) changed |= Union(a, b);
    Rebuild();
    ++result.iterations;
    result.nodes = std::ssize(ids_);
    if (!changed) {
      result.outcome = Outcome::kSaturated;
      return result;
    }
  }
  return result;
}

TermId EGraph::Add(Term term) {
  term = Canonical(std::move(term));
  const auto [entry, is_new] = ids_.try_emplace(NodeText(term), std::ssize(parent_));
  if (!is_new) return Find(entry->second);
  const TermId id = entry->second;
  std::vector<std::vector<std::string>> args;
  args.reserve(term.args.size());
  for (const TermId arg : term.args) args.push_back(ranks_[arg]);
  parent_.push_back(id);
  ranks_.push_back(pool_->RanksOfNode(term, args));
  nodes_[id] = {std::move(term)};
  return id;
}

TermId EGraph::Find(TermId id) const {
  while (parent_[id] != id) id = parent_[id];
  return id;
}

bool EGraph::Union(TermId a, TermId b) {
  a = Find(a);
  b = Find(b);
  if (a == b) return false;
  if (b < a) std::swap(a, b);
  SLUICE_CHECK(ranks_[a] == ranks_[b]);
  parent_[b] = a;
  std::vector<Term>& nodes = nodes_[a];
  for (Term& node : nodes_[b]) nodes.push_back(std::move(node));
  nodes_.erase(b);
  return true;
}

void EGraph::Rebuild() {
  for (bool changed = true; changed;) {
    changed = false;
    ids_.clear();
    const std::map<TermId, std::vector<Term>> before = std::exchange(nodes_, {});
    for (const auto& [id, nodes] : before) nodes_[id];
    for (const auto& [id, nodes] : before) {
      for (Term node : nodes) {
        node = Canonical(std::move(node));
        const auto [entry, is_new] = ids_.try_emplace(NodeText(node), id);
        if (is_new) {
          nodes_[Find(id)].push_back(std::move(node));
        } else {
          changed |= Union(entry->second, id);
        }
      }
    }
  }
}

Term EGraph::Canonical(Term term) const {
  for (TermId& arg : term.args) arg = Find(arg);
  return term;
}

}  // namespace sluice::einsum
