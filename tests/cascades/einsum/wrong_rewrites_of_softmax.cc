#include <functional>

#include "cascades/einsum/attention_terms.h"
#include "tests/cascades/einsum/wrong_rewrites.h"

namespace sluice::einsum {
namespace {

TermId Weight(TermGraph& graph, TermId s, TermId max) {
  return graph.Unary(Function::kExp, graph.Map(Op::kSubtract, s, max));
}

// Returns the numerator of a softmax: sum of exp(s - max s) x.
TermId NumeratorOf(TermPool& pool, std::vector<Condition> of_sum, std::vector<Condition> of_max) {
  const TermId s = TensorOf(pool, "S", {"p", "m"});
  const TermId max = pool.Reduce(Op::kMax, "m", s, std::move(of_max));
  return SumOf(pool, "m",
               pool.Map(Op::kMultiply, Weight(pool, s, max), TensorOf(pool, "X", {"m", "f"})),
               std::move(of_sum));
}

// Returns the sum of partials of the chunks c of m.
TermId SumOfPartials(TermPool& pool, std::vector<Condition> of_sum, std::vector<Condition> of_max) {
  Split(pool, {"m", "c", "j", 3}, TensorOf(pool, "S", {"p", "m"}));  // declares c
  const TermId l = TensorOf(pool, "L", {"p", "c"});
  const TermId max = pool.Reduce(Op::kMax, "c", l, std::move(of_max));
  return SumOf(pool, "c",
               pool.Map(Op::kMultiply, Weight(pool, l, max), TensorOf(pool, "U", {"c", "f"})),
               std::move(of_sum));
}

const Condition kSomeChunks = {{.terms = {{"c"}}}, Comparison::kLessEqual, {.terms = {{"p"}}}};

// Makes a stream of a sum over chunks, regardless of its conditions.
Terms StreamOfAny(TermGraph& graph, const Term& node) {
  Terms equal;
  if (!IsSum(node) || node.rank != "c") return equal;
  for (const auto& summand : ShiftedExponentialsOf(graph, node.args[0], "c")) {
    equal.push_back(graph.Fold("c", summand.score, *summand.factor));
  }
  return equal;
}

// Returns y - (y.v) u, over f.
TermId Excluded(TermGraph& graph, TermId y, TermId v, TermId u) {
  const TermId along = SumOf(graph, "f", graph.Map(Op::kMultiply, y, v));
  return graph.Map(Op::kSubtract, y, graph.Map(Op::kMultiply, along, u));
}

// Moves the exclusion into a fold, regardless of the ranks of the parts.
Terms ExcludeFromParts(TermGraph& graph, const Term& node) {
  Terms equal;
  if (!IsMap(node, Op::kSubtract)) return equal;
  for (Term& fold : NodesOfKind(graph, node.args[0], TermKind::kFold)) {
    const Operands product = ProductsOf(graph, node.args[1]).at(0);
    const TermId v = ProductsOf(graph, graph.NodesOf(product.a)[0].args[0]).at(0).b;
    fold.args[1] = Excluded(graph, fold.args[1], v, product.b);
    equal.push_back(graph.Add(fold));
  }
  return equal;
}

// Applies `with` to the shifted exponentials of sums over m.
auto OfNumerators(
    const std::function<TermId(TermGraph&, const ShiftedExponential&, const Term&)>& with) {
  return [with](TermGraph& graph, const Term& node) {
    Terms equal;
    if (!IsSum(node) || node.rank != "m") return equal;
    for (const auto& summand : ShiftedExponentialsOf(graph, node.args[0], "m")) {
      equal.push_back(with(graph, summand, node));
    }
    return equal;
  };
}

// Cuts a numerator into chunks. The maximum of each chunk is over `max_where`, and `correction`
// returns the factor of a chunk's sum, given its own maximum and the maximum of all chunks.
TermId Cut(TermGraph& graph, const ShiftedExponential& summand, const Term& node,
           const std::function<TermId(TermId sum, TermId own, TermId all)>& correct) {
  const Partition chunks{"m", "c", "j", 3};
  const TermId s = Split(graph, chunks, summand.score);
  const TermId x = Split(graph, chunks, *summand.factor);
  const TermId own = graph.Reduce(Op::kMax, "j", s, SplitConditions(chunks, summand.where));
  const TermId sum = SumOf(graph, "j", graph.Map(Op::kMultiply, Weight(graph, s, own), x),
                           SplitConditions(chunks, node.where));
  return SumOf(graph, "c", correct(sum, own, graph.Reduce(Op::kMax, "c", own)));
}

}  // namespace

std::vector<WrongRow> WrongRewritesOfSoftmax() {
  return {
      {.name = "AShiftThatHasTheRankIsReplaced",
       .rule = "a softmax is shifted",
       .term =
           [](TermPool& pool) {
             const TermId s = TensorOf(pool, "S", {"p", "m"});
             const TermId weight = Weight(pool, s, TensorOf(pool, "D2", {"m"}));
             const TermId x = pool.Map(Op::kMultiply, weight, TensorOf(pool, "X", {"m", "f"}));
             return pool.Map(Op::kDivide, SumOf(pool, "m", x), SumOf(pool, "m", weight));
           },
       .apply =
           [](TermGraph& graph, const Term& node) {
             Terms equal;
             if (!IsMap(node, Op::kDivide)) return equal;
             const Term top = graph.NodesOf(node.args[0])[0];
             const Term bottom = graph.NodesOf(node.args[1])[0];
             const Exponential summand = ExponentialsOf(graph, top.args[0]).at(0);
             const TermId s = MapsOf(graph, summand.exponent, Op::kSubtract).at(0).a;
             const TermId weight = Weight(graph, s, graph.Reduce(Op::kMax, "m", s));
             equal.push_back(graph.Map(Op::kDivide,
                                       SumOf(graph, "m", Times(graph, weight, summand.factor)),
                                       SumOf(graph, "m", weight)));
             return equal;
           },
       .right_rule_applies = true},
      {.name = "ARatioOfSumsOverTwoRanksIsShifted",
       .rule = "a softmax is shifted",
       .term =
           [](TermPool& pool) {
             const TermId weight = pool.Unary(Function::kExp, TensorOf(pool, "S", {"p", "m"}));
             return pool.Map(Op::kDivide, SumOf(pool, "p", weight), SumOf(pool, "m", weight));
           },
       .apply =
           [](TermGraph& graph, const Term& node) {
             Terms equal;
             if (!IsMap(node, Op::kDivide)) return equal;
             const Term bottom = graph.NodesOf(node.args[1])[0];
             const TermId s = ArgumentsOf(graph, bottom.args[0], Function::kExp).at(0);
             const TermId weight = Weight(graph, s, graph.Reduce(Op::kMax, "m", s));
             equal.push_back(
                 graph.Map(Op::kDivide, SumOf(graph, "p", weight), SumOf(graph, "m", weight)));
             return equal;
           }},
      {.name = "ChunksOfASumThatTheMaximumDoesNotCover",
       .rule = "a shifted sum",
       .term = [](TermPool& pool) { return NumeratorOf(pool, {}, {CausalCondition()}); },
       .apply =
           OfNumerators([](TermGraph& graph, const ShiftedExponential& summand, const Term& node) {
             return Cut(graph, summand, node, [&](TermId sum, TermId own, TermId all) {
               return graph.Map(Op::kMultiply, Weight(graph, own, all), sum);
             });
           })},
      {.name = "ChunksWithoutACorrection",
       .rule = "a shifted sum",
       .term = [](TermPool& pool) { return NumeratorOf(pool, {}, {}); },
       .apply =
           OfNumerators([](TermGraph& graph, const ShiftedExponential& summand, const Term& node) {
             return Cut(graph, summand, node, [](TermId sum, TermId, TermId) { return sum; });
           }),
       .right_rule_applies = true},
      {.name = "ChunksWithTheCorrectionUpsideDown",
       .rule = "a shifted sum",
       .term = [](TermPool& pool) { return NumeratorOf(pool, {}, {}); },
       .apply =
           OfNumerators([](TermGraph& graph, const ShiftedExponential& summand, const Term& node) {
             return Cut(graph, summand, node, [&](TermId sum, TermId own, TermId all) {
               return graph.Map(Op::kMultiply, Weight(graph, all, own), sum);
             });
           }),
       .right_rule_applies = true},
      {.name = "AFoldThatForgetsWhichKeysAreAdmitted",
       .rule = "chunks are computed",
       .term =
           [](TermPool& pool) {
             return NumeratorOf(pool, {CausalCondition()}, {CausalCondition()});
           },
       .apply = OfNumerators([](TermGraph& graph, const ShiftedExponential& summand, const Term&) {
         return graph.Fold("m", summand.score, *summand.factor);
       })},
      {.name = "AFoldOfAllChunksForASumOfSome",
       .rule = "chunks are computed",
       .term = [](TermPool& pool) { return SumOfPartials(pool, {kSomeChunks}, {}); },
       .apply = StreamOfAny},
      {.name = "AFoldOfAllChunksForAMaximumOfSome",
       .rule = "chunks are computed",
       .term = [](TermPool& pool) { return SumOfPartials(pool, {}, {kSomeChunks}); },
       .apply = StreamOfAny},
      {.name = "AMergeOfPartialsThatWereCorrectedBefore",
       .rule = "partials of chunks",
       .term = [](TermPool& pool) { return NumeratorOf(pool, {}, {}); },
       .apply =
           OfNumerators([](TermGraph& graph, const ShiftedExponential& summand, const Term& node) {
             const Term sum =
                 graph.NodesOf(Cut(graph, summand, node, [&](TermId part, TermId own, TermId all) {
                   return graph.Map(Op::kMultiply, Weight(graph, own, all), part);
                 }))[0];
             const auto parts = ShiftedExponentialsOf(graph, sum.args[0], "c").at(0);
             return graph.Merge("c", parts.score, sum.args[0]);
           })},
      {.name = "ALogSumExpWithoutItsMaximum",
       .rule = "a log-sum-exp",
       .term =
           [](TermPool& pool) {
             const TermId s = TensorOf(pool, "S", {"p", "m"});
             return pool.Unary(Function::kLog, SumOf(pool, "m", pool.Unary(Function::kExp, s)));
           },
       .apply =
           [](TermGraph& graph, const Term& node) {
             Terms equal;
             if (node.kind != TermKind::kUnary || node.function != Function::kLog) return equal;
             const Term sum = graph.NodesOf(node.args[0])[0];
             const TermId s = ArgumentsOf(graph, sum.args[0], Function::kExp).at(0);
             const TermId weight = Weight(graph, s, graph.Reduce(Op::kMax, "m", s));
             equal.push_back(graph.Unary(Function::kLog, SumOf(graph, "m", weight)));
             return equal;
           },
       .right_rule_applies = true},
      {.name = "ADirectionThatHasTheRankOfThePartials",
       .rule = "own values",
       .term =
           [](TermPool& pool) {
             const TermId y = NumeratorOf(pool, {}, {});
             const TermId v = TensorOf(pool, "X", {"m", "f"});
             const TermId along = SumOf(pool, "f", pool.Map(Op::kMultiply, y, v));
             return pool.Map(Op::kSubtract, y, pool.Map(Op::kMultiply, along, v));
           },
       .apply =
           [](TermGraph& graph, const Term& node) {
             Terms equal;
             if (!IsMap(node, Op::kSubtract)) return equal;
             const std::vector<Operands> projected = ProductsOf(graph, node.args[1]);
             if (projected.empty()) return equal;
             const TermId v = projected[0].b;
             for (const Term& y : NodesOfKind(graph, node.args[0], TermKind::kReduce)) {
               const TermId along = SumOf(graph, "f", graph.Map(Op::kMultiply, y.args[0], v));
               equal.push_back(
                   SumOf(graph, y.rank,
                         graph.Map(Op::kSubtract, y.args[0], graph.Map(Op::kMultiply, along, v))));
             }
             return equal;
           },
       .changes_ranks = true},
      {.name = "AFoldWhoseWeightsHaveTheRankOfTheDirection",
       .rule = "own values",
       .term =
           [](TermPool& pool) {
             SumOfPartials(pool, {}, {});  // declares c
             const TermId y = pool.Fold("c", TensorOf(pool, "M", {"p", "c", "f"}),
                                        TensorOf(pool, "U", {"c", "f"}));
             return Excluded(pool, y, TensorOf(pool, "O1", {"p", "f"}),
                             TensorOf(pool, "O2", {"p", "f"}));
           },
       .apply = ExcludeFromParts},
      {.name = "ADotProductThatHasTheRankOfThePartials",
       .rule = "own values",
       .term =
           [](TermPool& pool) {
             SumOfPartials(pool, {}, {});
             const TermId y =
                 pool.Fold("c", TensorOf(pool, "L", {"p", "c"}), TensorOf(pool, "U", {"c", "f"}));
             return Excluded(pool, y, TensorOf(pool, "U", {"c", "f"}),
                             TensorOf(pool, "O2", {"p", "f"}));
           },
       .apply = ExcludeFromParts,
       .changes_ranks = true},
      {.name = "TheSelfTermIsLeftOutInSpiteOfAGate",
       .rule = "the self term",
       .term =
           [](TermPool& pool) {
             return AttentionTerm(pool, {.xsa = XsaForm::kNorm, .gate = true});
           },
       .apply =
           [](TermGraph& graph, const Term& node) {
             Terms equal;
             if (!IsMap(node, Op::kSubtract) || !graph.HasRank(node.args[0], "f")) return equal;
             Term less = graph.NodesOf(node.args[0])[0];
             less.where[0].comparison = Comparison::kLess;
             const TermId y = graph.Add(less);
             const Operands product = ProductsOf(graph, node.args[1]).at(0);
             const Operands along = ProductsOf(graph, product.a).at(0);
             const TermId dot = SumOf(graph, "f", graph.Map(Op::kMultiply, y, product.b));
             const TermId part =
                 graph.Map(Op::kMultiply, graph.Map(Op::kMultiply, dot, along.b), product.b);
             equal.push_back(graph.Map(Op::kSubtract, y, part));
             return equal;
           }},
      // A guard against values of zero keeps a part of every value, so that the self term counts.
      {.name = "TheSelfTermIsLeftOutInSpiteOfAGuard",
       .rule = "the self term",
       .term =
           [](TermPool& pool) {
             const TermId y = AttentionTerm(pool, {});
             const TermId v = TensorOf(pool, "O", {"b", "p", "h", "f"});
             const TermId squared = SumOf(pool, "f", pool.Map(Op::kMultiply, v, v));
             const TermId guarded = pool.Map(Op::kAdd, squared, pool.Constant(0.25));
             const TermId along = SumOf(pool, "f", pool.Map(Op::kMultiply, y, v));
             return pool.Map(Op::kSubtract, y,
                             pool.Map(Op::kMultiply, pool.Map(Op::kDivide, along, guarded), v));
           },
       .apply =
           [](TermGraph& graph, const Term& node) {
             Terms equal;
             if (!IsMap(node, Op::kSubtract) || !graph.HasRank(node.args[0], "f")) return equal;
             Term less = graph.NodesOf(node.args[0])[0];
             less.where[0].comparison = Comparison::kLess;
             const TermId y = graph.Add(less);
             const Operands product = MapsOf(graph, node.args[1], Op::kMultiply).at(0);
             const Operands along = MapsOf(graph, product.a, Op::kDivide).at(0);
             const TermId dot = SumOf(graph, "f", graph.Map(Op::kMultiply, y, product.b));
             const TermId part =
                 graph.Map(Op::kMultiply, graph.Map(Op::kDivide, dot, along.b), product.b);
             equal.push_back(graph.Map(Op::kSubtract, y, part));
             return equal;
           }},
      {.name = "ASplitThatTakesTheInnerRankForTheOuter",
       .rule = "a split",
       .term =
           [](TermPool& pool) {
             return Split(pool, {"m", "c", "j", 3}, TensorOf(pool, "S", {"p", "m"}));
           },
       .apply =
           [](TermGraph& graph, const Term& node) {
             Terms equal;
             if (node.kind != TermKind::kSplit) return equal;
             Term input = graph.NodesOf(node.args[0])[0];
             const Partition swapped{node.rank, node.inner, node.outer, node.chunk};
             for (Index& index : input.access.indices) index = SplitIndex(swapped, index);
             equal.push_back(graph.Add(input));
             return equal;
           },
       .right_rule_applies = true},
  };
}

}  // namespace sluice::einsum
