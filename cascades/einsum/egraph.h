// A graph of classes of equal terms: the rewrites found so far, all at once.
//
//   EGraph graph(&pool);
//   const TermId root = graph.AddTerm(term);
//   const Saturation result = graph.Saturate(AllRules({}), {});
//
// The same terms and rules give the same classes. Once saturated, the classes do not depend on the
// order of the rules either.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/enum_names.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/term_graph.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

enum class Outcome { kSaturated, kNodeLimit, kIterationLimit };

constexpr auto EnumNamesOf(Outcome) {
  using enum Outcome;
  return EnumNameTable<Outcome>({{kSaturated, "saturated"},
                                 {kNodeLimit, "node limit"},
                                 {kIterationLimit, "iteration limit"}});
}

struct SaturationLimits {
  int64_t nodes = 20000;
  int32_t iterations = 40;
};

struct Saturation {
  Outcome outcome;
  int32_t iterations;  // whole ones
  int64_t nodes;
};

class EGraph : public TermGraph {
 public:
  // `pool` is not owned. It holds the ranks and tensors.
  explicit EGraph(TermPool* pool) : pool_(pool) {}

  // Returns the class of a term of the pool.
  TermId AddTerm(TermId term);
  // Applies the rules to every node, until nothing changes or a limit is reached.
  Saturation Saturate(const std::vector<Rule>& rules, const SaturationLimits& limits);

  TermId Add(Term term) override;
  TermId Find(TermId id) const override;
  std::vector<Term> NodesOf(TermId id) const override { return nodes_.at(Find(id)); }
  const std::vector<std::string>& RanksOf(TermId id) const override { return ranks_[id]; }
  void DeclareRank(Rank rank) override { pool_->DeclareRank(std::move(rank)); }
  const Rank& RankOf(const std::string& name) const override { return pool_->RankOf(name); }

 private:
  // Returns whether the classes were different. Requires that they have the same free ranks.
  bool Union(TermId a, TermId b);
  // Merges the classes whose nodes have become equal, and removes duplicates.
  void Rebuild();
  Term Canonical(Term term) const;

  TermPool* pool_;
  std::vector<TermId> parent_;  // of each id ever returned; the smallest is the root
  std::deque<std::vector<std::string>> ranks_;   // of each id
  std::map<TermId, std::vector<Term>> nodes_;    // of each class
  std::unordered_map<std::string, TermId> ids_;  // by NodeText
};

}  // namespace sluice::einsum
