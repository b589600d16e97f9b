// The interface of the terms that rewrites use. In a TermPool each id is one term. In an EGraph an
// id is a class of equal terms, and its nodes are the terms' outermost operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cascades/einsum/cascade.h"
#include "cascades/einsum/term.h"

namespace sluice::einsum {

class TermGraph {
 public:
  virtual ~TermGraph() = default;

  // Returns the id of the term, which may have existed before.
  virtual TermId Add(Term term) = 0;
  // Returns the current id for an id that Add returned.
  virtual TermId Find(TermId id) const = 0;
  virtual std::vector<Term> NodesOf(TermId id) const = 0;
  // The free ranks, in the order of their declaration.
  virtual const std::vector<std::string>& RanksOf(TermId id) const = 0;
  // Requires that the name is new, or that the rank was declared with the same size.
  virtual void DeclareRank(Rank rank) = 0;
  // Requires a declared rank.
  virtual const Rank& RankOf(const std::string& name) const = 0;

  bool HasRank(TermId id, const std::string& rank) const;

  TermId Constant(double value);
  TermId Unary(Function function, TermId a);
  TermId Map(Op op, TermId a, TermId b);
  TermId Reduce(Op op, std::string rank, TermId a, std::vector<Condition> where = {});
  TermId Fold(std::string rank, TermId a, TermId b);
  TermId Merge(std::string rank, TermId a, TermId b);
};

// Keys of a rank that are cut into chunks: rank = outer * chunk + inner.
struct Partition {
  std::string rank;
  std::string outer;
  std::string inner;
  int64_t chunk;
};

// Declares the outer and the inner rank, and returns `a` with the rank split.
TermId Split(TermGraph& graph, const Partition& partition, TermId a);

// Returns the index or the conditions with the rank replaced.
Index SplitIndex(const Partition& partition, Index index);
std::vector<Condition> SplitConditions(const Partition& partition, std::vector<Condition> where);

}  // namespace sluice::einsum
