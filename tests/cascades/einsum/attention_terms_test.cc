#include "cascades/einsum/attention_terms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "cascades/einsum/analysis.h"
#include "cascades/einsum/egraph.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "tests/cascades/einsum/rule_check.h"

namespace sluice::einsum {
namespace {

// Returns how many variants make each number of passes over the context.
std::map<int, int> PassesOfVariants(const AttentionShape& shape, const RuleOptions& options) {
  TermPool pool;
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(AttentionTerm(pool, shape));
  EXPECT_EQ(graph.Saturate(AllRules(options), {}).outcome, Outcome::kSaturated);
  std::map<int, int> count;
  for (const TermId variant : VariantsOf(graph, pool, root, 2000).terms) {
    ++count[Passes(Lower(pool, {{"Z", variant}}), "context")];
  }
  return count;
}

const RuleOptions kChunksOf256 = {.partitions = {{"m", "c", "j", 256}}};

TEST(AttentionTerms, TheTermAsWrittenMakesThreePasses) {
  TermPool pool;
  const TermId term = AttentionTerm(pool, {.causal = false});
  EXPECT_EQ(Passes(Lower(pool, {{"Z", term}}), "context"), 3);
}

TEST(AttentionTerms, TwoPassesNeedOnlyTheDivisionMovedAndOnePassAFold) {
  const std::map<int, int> divided = PassesOfVariants({}, {});
  EXPECT_GT(divided.at(3), 0);
  EXPECT_GT(divided.at(2), 0);
  EXPECT_FALSE(divided.contains(1));
  const std::map<int, int> folded = PassesOfVariants({}, kChunksOf256);
  EXPECT_GT(folded.at(3), 0);
  EXPECT_GT(folded.at(2), 0);
  EXPECT_GT(folded.at(1), 0);
  EXPECT_EQ(folded.size(), 3u);
}

TEST(AttentionTerms, ExclusiveAttentionMakesOnePassInBothForms) {
  for (const XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    const AttentionShape shape{.xsa = form};
    EXPECT_TRUE(PassesOfVariants(shape, kChunksOf256).contains(1)) << NameOf(form);
  }
}

// Whether the term divides once by both, as by their product.
bool DividesByProduct(const TermPool& pool, TermId term, TermId a, TermId b) {
  return std::ranges::any_of(PartsOf(pool, term), [&](TermId part) {
    const Term& node = pool.TermOf(part);
    if (node.kind != TermKind::kMap || node.op != Op::kDivide) return false;
    const Term& divisor = pool.TermOf(node.args[1]);
    return divisor.kind == TermKind::kMap && divisor.op == Op::kMultiply &&
           (divisor.args == std::vector{a, b} || divisor.args == std::vector{b, a});
  });
}

TEST(AttentionTerms, ExclusiveAttentionAndSoftmaxShareOneDivision) {
  for (const XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    TermPool pool;
    const TermId y = AttentionTerm(pool, {});
    const TermId share = pool.TermOf(pool.TermOf(y).args[0]).args[0];
    const TermId of_softmax = pool.TermOf(share).args[1];
    const TermId own = pool.Input({.name = "O", .ranks = {"b", "p", "h", "f"}});
    TermId of_xsa = pool.Reduce(Op::kAdd, "f", pool.Map(Op::kMultiply, own, own));
    if (form == XsaForm::kNorm) of_xsa = pool.Unary(Function::kSqrt, of_xsa);
    EGraph graph(&pool);
    const TermId root = graph.AddTerm(AttentionTerm(pool, {.xsa = form}));
    std::vector<Rule> rules = DivisionRules();
    std::ranges::copy(QuotientRules(), std::back_inserter(rules));
    EXPECT_EQ(graph.Saturate(rules, {}).outcome, Outcome::kSaturated);
    const Variants variants = VariantsOf(graph, pool, root, 2000);
    EXPECT_TRUE(variants.complete);
    int by_product = 0;
    int once_at_the_end = 0;
    for (const TermId variant : variants.terms) {
      by_product += DividesByProduct(pool, variant, of_softmax, of_xsa);
      const Term& last = pool.TermOf(variant);
      once_at_the_end += last.op == Op::kDivide && last.args[1] == of_softmax;
    }
    EXPECT_GT(by_product, 0) << NameOf(form);
    EXPECT_GT(once_at_the_end, 0) << NameOf(form);
  }
}

// The value of one query and head, from the definition.
TEST(AttentionTerms, AttentionIsTheWeightedMeanOfValues) {
  TermPool pool;
  const AttentionShape shape{.scale = 0.5, .soft_cap = 3};
  const TermId term = AttentionTerm(pool, shape);
  TermValues values(pool,
                    {{"sequences", 1},
                     {"kv_heads", 1},
                     {"group", 1},
                     {"tokens", 1},
                     {"context", 2},
                     {"head_dim", 1}},
                    {{"Q", {2}}, {"K", {1, -3}}, {"V", {5, 7}}});
  const double a = std::exp(3 * std::tanh(0.5 * 2 * 1 / 3));
  const double b = std::exp(3 * std::tanh(0.5 * 2 * -3 / 3));
  EXPECT_EQ(Difference({(5 * a + 7 * b) / (a + b)}, values.All(term, pool.RanksOf(term))), "");
}

// With a gate of 1, nothing of the result lies along the query's own value.
TEST(AttentionTerms, ExclusiveAttentionIsOrthogonalToTheOwnValue) {
  for (const XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    TermPool pool;
    const TermId z = AttentionTerm(pool, {.xsa = form});
    const TermId own = pool.Input({.name = "O", .ranks = {"b", "p", "h", "f"}});
    const TermId dot = pool.Reduce(Op::kAdd, "f", pool.Map(Op::kMultiply, z, own));
    TermValues values = RandomValues(pool, {dot}, 11);
    const std::vector<double> dots = values.All(dot, pool.RanksOf(dot));
    EXPECT_EQ(Difference(std::vector<double>(dots.size()), dots), "") << NameOf(form);
  }
}

TEST(AttentionTerms, TheGateScalesTheExcludedPart) {
  for (const XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    TermPool pool;
    const TermId y = AttentionTerm(pool, {});
    const TermId whole = AttentionTerm(pool, {.xsa = form});
    const TermId gated = AttentionTerm(pool, {.xsa = form, .gate = true});
    const TermId gate = pool.Input({.name = "W", .ranks = {"h", "g"}, .home = Home::kWeight});
    const TermId excluded = pool.Map(Op::kMultiply, gate, pool.Map(Op::kSubtract, y, whole));
    const TermId expected = pool.Map(Op::kSubtract, y, excluded);
    TermValues values = RandomValues(pool, {expected, gated}, 12);
    const std::vector<std::string>& ranks = pool.RanksOf(gated);
    EXPECT_EQ(Difference(values.All(expected, ranks), values.All(gated, ranks)), "");
  }
}

}  // namespace
}  // namespace sluice::einsum
