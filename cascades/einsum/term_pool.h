// Terms, each kept once, and the ranks and tensors that they name.
//
//   TermPool pool;
//   pool.DeclareRank({"p", {"tokens"}});
//   pool.DeclareRank({"e", {"head_dim"}});
//   const TermId q = pool.Input({.name = "Q", .ranks = {"p", "e"}});
//   const TermId squares = pool.Reduce(Op::kAdd, "e", pool.Map(Op::kMultiply, q, q));
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cascades/einsum/cascade.h"
#include "cascades/einsum/term.h"
#include "cascades/einsum/term_graph.h"

namespace sluice::einsum {

class TermPool : public TermGraph {
 public:
  TermId Add(Term term) override;
  TermId Find(TermId id) const override { return id; }
  std::vector<Term> NodesOf(TermId id) const override { return {TermOf(id)}; }
  const std::vector<std::string>& RanksOf(TermId id) const override { return ranks_of_[id]; }
  void DeclareRank(Rank rank) override;
  const Rank& RankOf(const std::string& name) const override;

  // Declares the tensor and returns its term at `indices`, or at its own ranks if there are none.
  TermId Input(Tensor tensor, std::vector<Index> indices = {});

  const Term& TermOf(TermId id) const { return terms_[id]; }
  // Requires a declared tensor.
  const Tensor& TensorOf(const std::string& name) const;
  // All declared ranks, in the order of their declaration.
  const std::vector<Rank>& ranks() const { return ranks_; }

  // Returns the free ranks of an operation on terms with the free ranks given.
  std::vector<std::string> RanksOfNode(const Term& term,
                                       const std::vector<std::vector<std::string>>& args) const;

 private:
  std::vector<Rank> ranks_;
  std::map<std::string, Tensor> tensors_;
  std::deque<Term> terms_;                         // Add moves no existing term
  std::deque<std::vector<std::string>> ranks_of_;  // of each term
  std::unordered_map<std::string, TermId> ids_;    // by NodeText
};

// Returns the operation as text, with the ids of its arguments: "(x #1 #2)". Two terms
// have equal texts if and only if they are equal.
std::string NodeText(const Term& term);

// Above this many bytes of text, a part of a term is written as its id.
inline constexpr int64_t kMaxTermText = int64_t{1} << 16;

// Returns the whole term as text: "(reduce + m (exp (- S[p,m] G[p])))". A part that is used twice
// is written twice, so that the text of a few dozen nodes may be too long for any memory.
std::string TermText(const TermPool& pool, TermId id);

}  // namespace sluice::einsum
