#include "cascades/einsum/attention_terms.h"
#include "tests/cascades/einsum/wrong_rewrites.h"

namespace sluice::einsum {

std::vector<WrongRow> WrongRewritesOfProducts() {
  return {
      {.name = "ADivisorThatHasTheRankLeavesTheSum",
       .rule = "a division leaves a sum",
       .term =
           [](TermPool& pool) {
             return SumOf(pool, "m",
                          pool.Map(Op::kDivide, TensorOf(pool, "S", {"p", "m"}),
                                   TensorOf(pool, "D2", {"m"})));
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
             return SumOf(pool, "m",
                          pool.Map(Op::kDivide, TensorOf(pool, "S", {"p", "m"}),
                                   TensorOf(pool, "D1", {"p"})),
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
             return pool.Map(Op::kDivide,
                             pool.Map(Op::kDivide, TensorOf(pool, "S", {"p", "m"}),
                                      TensorOf(pool, "D1", {"p"})),
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
             return pool.Map(
                 Op::kMultiply, pool.Constant(3),
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
  };
}

}  // namespace sluice::einsum
