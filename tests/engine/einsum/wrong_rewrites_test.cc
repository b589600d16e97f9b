// Rewrites that are wrong in one place each, to see that the check of the right ones would notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/einsum/attention_terms.h"
#include "engine/einsum/rewrites.h"
#include "engine/einsum/rewrites_match.h"
#include "tests/engine/einsum/rule_check.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using Terms = std::vector<TermId>;

TermId TensorOf(TermPool& pool, const std::string& name, std::vector<std::string> ranks) {
  return pool.Input({.name = name, .ranks = std::move(ranks)});
}

TermId SumOf(TermGraph& graph, const std::string& rank, TermId a,
             std::vector<Condition> where = {}) {
  return graph.Reduce(Op::kAdd, rank, a, std::move(where));
}

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

// Makes a stream of a sum over chunks, whatever its conditions.
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

// Moves the exclusion into a fold, whatever ranks the parts have.
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
// returns the factor of a chunk's sum, given its own maximum and that of all chunks.
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

struct WrongRow {
  const char* name;
  const char* rule;  // the beginning of the name of the right rule
  std::function<TermId(TermPool&)> term;
  decltype(Rule::apply) apply;
  // Whether what it makes has other ranks, so that no value is needed to see that it is wrong.
  bool changes_ranks = false;
  // Whether the right rule applies to the term, rightly.
  bool right_rule_applies = false;
};
class WrongRewrites : public TableTest<WrongRow> {};

TEST_P(WrongRewrites, AreCaught) {
  const uint32_t seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId term = row().term(pool);
  // A size of 1 hides some faults, so several draws are looked at.
  std::string caught;
  for (uint32_t draw = 0; draw < 20 && caught.empty(); ++draw) {
    caught =
        CheckRule(pool, {row().name, "none", row().apply}, term, seed + 100 * draw).counterexample;
  }
  EXPECT_NE(caught, "") << "seed " << seed;
  EXPECT_EQ(caught.find("other ranks") != std::string::npos, row().changes_ranks) << caught;
}

// Terms on which a rule without its side condition goes wrong.
TEST_P(WrongRewrites, HaveTermsOnWhichTheRightRulesAreRight) {
  const uint32_t seed = std::random_device{}();
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId term = row().term(pool);
  int applications = 0;  // of the right rule
  for (const Rule& rule :
       AllRules({.partitions = {{"m", "c", "j", 3}}, .own_value = OwnValueOfAttention()})) {
    for (uint32_t draw = 0; draw < 5; ++draw) {
      const RuleFinding finding = CheckRule(pool, rule, term, seed + 100 * draw);
      EXPECT_EQ(finding.counterexample, "") << rule.name << ", seed " << seed;
      if (rule.name.starts_with(row().rule)) applications += finding.applications;
    }
  }
  EXPECT_EQ(applications > 0, row().right_rule_applies);
}

const WrongRow kWrongRows[] = {
    {.name = "ADivisorThatHasTheRankLeavesTheSum",
     .rule = "a division leaves a sum",
     .term =
         [](TermPool& pool) {
           return SumOf(
               pool, "m",
               pool.Map(Op::kDivide, TensorOf(pool, "S", {"p", "m"}), TensorOf(pool, "D2", {"m"})));
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsSum(node)) return equal;
           for (const Operands& ratio : MapsOf(graph, node.args[0], Op::kDivide)) {
             equal.push_back(graph.Map(Op::kDivide, SumOf(graph, node.rank, ratio.a), ratio.b));
           }
           return equal;
         },
     .changes_ranks = true},
    {.name = "ADivisionLeavesASumWithoutItsCondition",
     .rule = "a division leaves a sum",
     .term =
         [](TermPool& pool) {
           return SumOf(
               pool, "m",
               pool.Map(Op::kDivide, TensorOf(pool, "S", {"p", "m"}), TensorOf(pool, "D1", {"p"})),
               {CausalCondition()});
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsSum(node)) return equal;
           for (const Operands& ratio : MapsOf(graph, node.args[0], Op::kDivide)) {
             equal.push_back(graph.Map(Op::kDivide, SumOf(graph, node.rank, ratio.a), ratio.b));
           }
           return equal;
         },
     .right_rule_applies = true},
    {.name = "AFactorJoinsTheDivisor",
     .rule = "a division leaves a product",
     .term = [](TermPool& pool) { return AttentionTerm(pool, {}); },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           for (const Operands& product : ProductsOf(node)) {
             for (const Operands& ratio : MapsOf(graph, product.a, Op::kDivide)) {
               equal.push_back(
                   graph.Map(Op::kDivide, ratio.a, graph.Map(Op::kMultiply, ratio.b, product.b)));
             }
           }
           return equal;
         },
     .right_rule_applies = true},
    {.name = "AQuotientIsDividedByAQuotient",
     .rule = "divisors of a quotient",
     .term =
         [](TermPool& pool) {
           return pool.Map(
               Op::kDivide,
               pool.Map(Op::kDivide, TensorOf(pool, "S", {"p", "m"}), TensorOf(pool, "D1", {"p"})),
               TensorOf(pool, "D2", {"m"}));
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsMap(node, Op::kDivide)) return equal;
           for (const Operands& ratio : MapsOf(graph, node.args[0], Op::kDivide)) {
             equal.push_back(
                 graph.Map(Op::kDivide, ratio.a, graph.Map(Op::kDivide, ratio.b, node.args[1])));
           }
           return equal;
         },
     .right_rule_applies = true},
    {.name = "ADifferenceOfTwoDivisors",
     .rule = "a difference is divided once",
     .term =
         [](TermPool& pool) {
           const TermId s = TensorOf(pool, "S", {"p", "m"});
           return pool.Map(Op::kSubtract, pool.Map(Op::kDivide, s, TensorOf(pool, "D1", {"p"})),
                           pool.Map(Op::kDivide, s, TensorOf(pool, "D2", {"m"})));
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsMap(node, Op::kSubtract)) return equal;
           for (const Operands& a : MapsOf(graph, node.args[0], Op::kDivide)) {
             for (const Operands& b : MapsOf(graph, node.args[1], Op::kDivide)) {
               equal.push_back(graph.Map(Op::kDivide, graph.Map(Op::kSubtract, a.a, b.a), a.b));
             }
           }
           return equal;
         }},
    {.name = "AFactorThatHasTheRankLeavesTheSum",
     .rule = "a factor leaves a sum",
     .term =
         [](TermPool& pool) {
           return SumOf(pool, "m",
                        pool.Map(Op::kMultiply, TensorOf(pool, "S", {"p", "m"}),
                                 TensorOf(pool, "D2", {"m"})));
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsSum(node)) return equal;
           for (const Operands& product : ProductsOf(graph, node.args[0])) {
             equal.push_back(
                 graph.Map(Op::kMultiply, SumOf(graph, node.rank, product.a), product.b));
           }
           return equal;
         },
     .changes_ranks = true},
    {.name = "AFactorLeavesASumWithoutItsCondition",
     .rule = "a factor leaves a sum",
     .term =
         [](TermPool& pool) {
           return SumOf(pool, "m",
                        pool.Map(Op::kMultiply, TensorOf(pool, "S", {"p", "m"}),
                                 TensorOf(pool, "D1", {"p"})),
                        {CausalCondition()});
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsSum(node)) return equal;
           for (const Operands& product : MapsOf(graph, node.args[0], Op::kMultiply)) {
             equal.push_back(
                 graph.Map(Op::kMultiply, SumOf(graph, node.rank, product.a), product.b));
           }
           return equal;
         },
     .right_rule_applies = true},
    {.name = "AScaleIsFoldedIntoBothOperands",
     .rule = "a scale is folded",
     .term = [](TermPool& pool) { return AttentionTerm(pool, {.query_gain = true}); },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsMap(node, Op::kMultiply)) return equal;
           const TermId scale = node.args[1];
           for (const Term& sum : NodesOfKind(graph, node.args[0], TermKind::kReduce)) {
             for (const Operands& inside : MapsOf(graph, sum.args[0], Op::kMultiply)) {
               equal.push_back(
                   SumOf(graph, sum.rank,
                         graph.Map(Op::kMultiply, graph.Map(Op::kMultiply, scale, inside.a),
                                   graph.Map(Op::kMultiply, scale, inside.b))));
             }
           }
           return equal;
         },
     .right_rule_applies = true},
    {.name = "AScaleThatHasTheRankIsFolded",
     .rule = "a scale is folded",
     .term =
         [](TermPool& pool) {
           const TermId e = TensorOf(pool, "Q1", {"p", "e"});
           return pool.Map(Op::kMultiply, SumOf(pool, "e", pool.Map(Op::kMultiply, e, e)), e);
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           for (const Operands& product : ProductsOf(node)) {
             for (const Term& sum : NodesOfKind(graph, product.a, TermKind::kReduce)) {
               equal.push_back(
                   SumOf(graph, sum.rank, graph.Map(Op::kMultiply, product.b, sum.args[0])));
             }
           }
           return equal;
         },
     .changes_ranks = true},
    {.name = "ConstantsAreAdded",
     .rule = "constants are multiplied",
     .term =
         [](TermPool& pool) {
           return pool.Map(Op::kMultiply, pool.Constant(3),
                           pool.Map(Op::kMultiply, pool.Constant(4), TensorOf(pool, "D1", {"p"})));
         },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           for (const Operands& outer : ProductsOf(node)) {
             for (const Operands& inner : ProductsOf(graph, outer.b)) {
               equal.push_back(graph.Map(Op::kMultiply, graph.Constant(7), inner.b));
             }
           }
           return equal;
         },
     .right_rule_applies = true},
    {.name = "ASoftCapDividesWhereItMultiplies",
     .rule = "a constant divisor",
     .term = [](TermPool& pool) { return AttentionTerm(pool, {.soft_cap = 30}); },
     .apply =
         [](TermGraph& graph, const Term& node) {
           Terms equal;
           if (!IsMap(node, Op::kDivide)) return equal;
           for (const Term& cap : NodesOfKind(graph, node.args[1], TermKind::kConstant)) {
             equal.push_back(graph.Map(Op::kMultiply, graph.Constant(cap.value), node.args[0]));
           }
           return equal;
         },
     .right_rule_applies = true},
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
         [](TermPool& pool) { return NumeratorOf(pool, {CausalCondition()}, {CausalCondition()}); },
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
         [](TermPool& pool) { return AttentionTerm(pool, {.xsa = XsaForm::kNorm, .gate = true}); },
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
SLUICE_TABLE(WrongRewrites, kWrongRows);

TEST(Rewrites, EachHasAWrongVersionThatValuesShow) {
  for (const Rule& rule :
       AllRules({.partitions = {{"m", "c", "j", 3}}, .own_value = OwnValueOfAttention()})) {
    EXPECT_TRUE(std::ranges::any_of(kWrongRows, [&](const WrongRow& row) {
      return rule.name.starts_with(row.rule) && !row.changes_ranks;
    })) << rule.name;
  }
}

}  // namespace
}  // namespace sluice::einsum
