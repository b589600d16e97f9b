#include <algorithm>
#include <string>
#include <utility>

#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/rewrites_match.h"

namespace sluice::einsum {
namespace {

using ApplyRule = decltype(Rule::apply);

// Returns whether `weak` admits every point that `strong` admits. May return false although it
// does.
bool Implies(const std::vector<Condition>& strong, const std::vector<Condition>& weak) {
  return std::ranges::all_of(weak, [&](const Condition& needed) {
    Condition strict = needed;
    if (strict.comparison == Comparison::kLessEqual) strict.comparison = Comparison::kLess;
    return std::ranges::find(strong, needed) != strong.end() ||
           std::ranges::find(strong, strict) != strong.end();
  });
}

TermId Exp(TermGraph& graph, TermId a, TermId shift) {
  return graph.Unary(Function::kExp, graph.Map(Op::kSubtract, a, shift));
}

// Returns the scores s such that exp(s - something without the rank) is exp(exponent). The
// subtracted term has only ranks of the scores, so the value without it has the same ranks.
std::vector<TermId> ScoresOf(const TermGraph& graph, TermId exponent, const std::string& rank) {
  std::vector<TermId> scores;
  for (const Operands& shift : MapsOf(graph, exponent, Op::kSubtract)) {
    const bool fits = std::ranges::all_of(graph.RanksOf(shift.b), [&](const std::string& each) {
      return each != rank && graph.HasRank(shift.a, each);
    });
    if (fits) scores.push_back(shift.a);
  }
  if (scores.empty()) scores.push_back(exponent);
  return scores;
}

// sum of exp(s - g) x / sum of exp(s - g) = the same with max s instead of g
std::vector<TermId> ShiftByMaximum(TermGraph& graph, const Term& node) {
  if (!IsMap(node, Op::kDivide)) return {};
  std::vector<TermId> equal;
  for (const Term& below : NodesOfKind(graph, node.args[1], TermKind::kReduce)) {
    if (!IsSum(below)) continue;
    for (const TermId exponent : ArgumentsOf(graph, below.args[0], Function::kExp)) {
      for (const Term& above : NodesOfKind(graph, node.args[0], TermKind::kReduce)) {
        if (!IsSum(above) || above.rank != below.rank) continue;
        for (const Exponential& summand : ExponentialsOf(graph, above.args[0])) {
          if (graph.Find(summand.exponent) != graph.Find(exponent)) continue;
          for (const TermId score : ScoresOf(graph, exponent, below.rank)) {
            const TermId max = graph.Reduce(Op::kMax, below.rank, score, below.where);
            const TermId weight = Exp(graph, score, max);
            const TermId top = graph.Reduce(Op::kAdd, above.rank,
                                            Times(graph, weight, summand.factor), above.where);
            const TermId bottom = graph.Reduce(Op::kAdd, below.rank, weight, below.where);
            equal.push_back(graph.Map(Op::kDivide, top, bottom));
          }
        }
      }
    }
  }
  return equal;
}

// The parts of a sum over chunks: the maximum of each chunk, and each chunk's own sum.
struct Chunks {
  TermId max;
  TermId sum;
};

Chunks ChunksOf(TermGraph& graph, const Partition& partition, const ShiftedExponential& summand,
                const std::vector<Condition>& where) {
  const TermId score = Split(graph, partition, summand.score);
  std::optional<TermId> factor = summand.factor;
  if (factor) factor = Split(graph, partition, *factor);
  const TermId max =
      graph.Reduce(Op::kMax, partition.inner, score, SplitConditions(partition, summand.where));
  const TermId sum =
      graph.Reduce(Op::kAdd, partition.inner, Times(graph, Exp(graph, score, max), factor),
                   SplitConditions(partition, where));
  return {max, sum};
}

// sum over c of exp(max - max over c of max) x sum
TermId SumOfChunks(TermGraph& graph, const Partition& partition, const Chunks& chunks) {
  const TermId all = graph.Reduce(Op::kMax, partition.outer, chunks.max);
  return graph.Reduce(Op::kAdd, partition.outer,
                      graph.Map(Op::kMultiply, Exp(graph, chunks.max, all), chunks.sum));
}

ApplyRule CutIntoChunks(const Partition& partition) {
  return [partition](TermGraph& graph, const Term& node) {
    std::vector<TermId> equal;
    if (!IsSum(node) || node.rank != partition.rank) return equal;
    for (const auto& summand : ShiftedExponentialsOf(graph, node.args[0], node.rank)) {
      // A chunk without a maximum has no points of the sum.
      if (!Implies(node.where, summand.where)) continue;
      equal.push_back(
          SumOfChunks(graph, partition, ChunksOf(graph, partition, summand, node.where)));
    }
    return equal;
  };
}

// log of sum of exp(x) = max + log of sum over chunks
ApplyRule CutLogSumExp(const Partition& partition) {
  return [partition](TermGraph& graph, const Term& node) {
    std::vector<TermId> equal;
    if (node.kind != TermKind::kUnary || node.function != Function::kLog) return equal;
    for (const Term& sum : NodesOfKind(graph, node.args[0], TermKind::kReduce)) {
      if (!IsSum(sum) || sum.rank != partition.rank) continue;
      for (const TermId x : ArgumentsOf(graph, sum.args[0], Function::kExp)) {
        const Chunks chunks = ChunksOf(graph, partition, {x, std::nullopt, sum.where}, sum.where);
        const TermId max = graph.Reduce(Op::kMax, partition.outer, chunks.max);
        const TermId rest = SumOfChunks(graph, partition, chunks);
        equal.push_back(graph.Map(Op::kAdd, max, graph.Unary(Function::kLog, rest)));
      }
    }
    return equal;
  };
}

// sum over c of exp(l - max over c of l) x b, as a kFold or a kMerge
ApplyRule Stream(const Partition& partition, TermKind kind) {
  return [rank = partition.outer, kind](TermGraph& graph, const Term& node) {
    std::vector<TermId> equal;
    if (!IsSum(node) || node.rank != rank || !node.where.empty()) return equal;
    for (const auto& summand : ShiftedExponentialsOf(graph, node.args[0], rank)) {
      if (!summand.where.empty()) continue;
      const TermId factor = summand.factor ? *summand.factor : graph.Constant(1);
      equal.push_back(graph.Add({.kind = kind, .args = {summand.score, factor}, .rank = rank}));
    }
    return equal;
  };
}

}  // namespace

std::vector<Rule> SoftmaxRules(const std::vector<Partition>& partitions) {
  std::vector<Rule> rules = {
      {"a softmax is shifted by its maximum",
       "the subtracted term has only ranks of the scores, without the rank of the sums",
       ShiftByMaximum}};
  for (const Partition& partition : partitions) {
    const std::string of = " (rank " + partition.rank + ")";
    rules.push_back({"a shifted sum is cut into chunks" + of,
                     "the maximum covers every point of the sum", CutIntoChunks(partition)});
    rules.push_back({"a log-sum-exp is cut into chunks" + of, "always", CutLogSumExp(partition)});
    rules.push_back({"chunks are computed one after another" + of,
                     "sum and maximum cover all chunks", Stream(partition, TermKind::kFold)});
    rules.push_back({"partials of chunks are merged in ascending order" + of,
                     "sum and maximum cover all chunks", Stream(partition, TermKind::kMerge)});
  }
  return rules;
}

}  // namespace sluice::einsum
