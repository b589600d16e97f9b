#include "cascades/einsum/egraph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "tests/cascades/einsum/rule_check.h"

namespace sluice::einsum {
namespace {

constexpr int64_t kAll = 100000;

RuleOptions Chunked() { return {.partitions = {{"m", "c", "j", 3}}}; }

std::vector<std::string> Texts(const TermPool& pool, const std::vector<TermId>& terms) {
  std::vector<std::string> texts;
  for (const TermId term : terms) texts.push_back(TermText(pool, term));
  return texts;
}

std::vector<std::string> VariantsOfShape(const AttentionShape& shape,
                                         const std::vector<Rule>& rules) {
  TermPool pool;
  const TermId term = AttentionTerm(pool, shape);
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(term);
  EXPECT_EQ(graph.Saturate(rules, {}).outcome, Outcome::kSaturated);
  const Variants variants = VariantsOf(graph, pool, root, kAll);
  EXPECT_TRUE(variants.complete);
  return Texts(pool, variants.terms);
}

// Returns `term` with `part` replaced wherever it occurs.
TermId Replace(TermPool& pool, TermId term, TermId part, TermId by) {
  if (term == part) return by;
  Term node = pool.TermOf(term);
  for (TermId& arg : node.args) arg = Replace(pool, arg, part, by);
  return pool.Add(node);
}

// Returns every term that a sequence of single rewrites produces.
std::set<TermId> Closure(TermPool& pool, const std::vector<Rule>& rules, TermId term) {
  std::set<TermId> found = {term};
  std::vector<TermId> open = {term};
  while (!open.empty()) {
    const TermId at = open.back();
    open.pop_back();
    for (const TermId part : PartsOf(pool, at)) {
      for (const Rule& rule : rules) {
        for (const TermId other : rule.apply(pool, pool.TermOf(part))) {
          const TermId next = Replace(pool, at, part, other);
          if (found.insert(next).second) open.push_back(next);
        }
      }
    }
  }
  return found;
}

bool IsPushed(const TermPool& pool, TermId term) {
  return std::ranges::none_of(
      PartsOf(pool, term), [&](TermId part) { return pool.TermOf(part).kind == TermKind::kSplit; });
}

TEST(EGraph, FindsEveryTermOfSingleRewrites) {
  const std::vector<Rule> rules = AllRules(Chunked());
  for (const AttentionShape& shape :
       {AttentionShape{}, AttentionShape{.causal = false}, AttentionShape{.scale = 0.5}}) {
    const bool small = shape.scale == 1;
    const std::vector<Rule> used = small ? rules : AllRules({});
    TermPool pool;
    std::vector<std::string> expected;
    for (const TermId term : Closure(pool, used, AttentionTerm(pool, shape))) {
      if (IsPushed(pool, term)) expected.push_back(TermText(pool, term));
    }
    std::ranges::sort(expected);
    EXPECT_GT(expected.size(), 5u);
    EXPECT_EQ(VariantsOfShape(shape, used), expected);
  }
}

// An e-graph finds more if a rule needs its operand in another form than the term has.
TEST(EGraph, FindsAllThatSingleRewritesOfExclusiveAttentionFind) {
  const std::vector<Rule> rules = AllRules({.partitions = {}, .own_value = OwnValueOfAttention()});
  for (const XsaForm form : {XsaForm::kSquared, XsaForm::kNorm}) {
    const AttentionShape shape{.xsa = form};
    TermPool pool;
    std::vector<std::string> singles;
    for (const TermId term : Closure(pool, rules, AttentionTerm(pool, shape))) {
      singles.push_back(TermText(pool, term));
    }
    std::ranges::sort(singles);
    EXPECT_GT(singles.size(), 50u);
    EXPECT_TRUE(std::ranges::includes(VariantsOfShape(shape, rules), singles));
  }
}

TEST(EGraph, FindsTheSameForAnyOrderOfRules) {
  const AttentionShape shape{.xsa = XsaForm::kSquared};
  std::vector<Rule> rules = AllRules(Chunked());
  const std::vector<std::string> expected = VariantsOfShape(shape, rules);
  EXPECT_GT(expected.size(), 100u);
  EXPECT_EQ(VariantsOfShape(shape, rules), expected);
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int i = 0; i < 3; ++i) {
    std::ranges::shuffle(rules, random);
    EXPECT_EQ(VariantsOfShape(shape, rules), expected) << "seed " << seed;
  }
}

std::vector<std::string> CommittedVariants(const std::string& of) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/cascades/einsum/variants_of_" + of +
                     ".txt");
  std::vector<std::string> committed;
  for (std::string line; std::getline(file, line);) committed.push_back(line);
  return committed;
}

// tests/tools/test_egglog.py compares the same files with another e-graph.
TEST(EGraph, FindsTheVariantsThatAreCommitted) {
  EXPECT_EQ(VariantsOfShape({.causal = false}, AllRules(Chunked())),
            CommittedVariants("attention"));
  EXPECT_EQ(VariantsOfShape({}, AllRules(Chunked())), CommittedVariants("causal_attention"));
  std::vector<Rule> divisions = DivisionRules();
  std::ranges::copy(QuotientRules(), std::back_inserter(divisions));
  EXPECT_EQ(VariantsOfShape({.xsa = XsaForm::kSquared}, divisions),
            CommittedVariants("exclusive_attention"));
}

TEST(EGraph, StopsAtItsLimits) {
  TermPool pool;
  const TermId term = AttentionTerm(pool, {});
  const std::vector<Rule> rules = AllRules(Chunked());
  EGraph few_nodes(&pool);
  few_nodes.AddTerm(term);
  const Saturation by_nodes = few_nodes.Saturate(rules, {.nodes = 20});
  EXPECT_EQ(by_nodes.outcome, Outcome::kNodeLimit);
  EXPECT_GT(by_nodes.nodes, 20);
  EXPECT_LT(by_nodes.nodes, 40);
  EGraph one_iteration(&pool);
  one_iteration.AddTerm(term);
  const Saturation by_iterations = one_iteration.Saturate(rules, {.iterations = 1});
  EXPECT_EQ(by_iterations.outcome, Outcome::kIterationLimit);
  EXPECT_EQ(by_iterations.iterations, 1);
}

TEST(EGraph, StopsWithinAnIteration) {
  TermPool pool;
  const TermId term = AttentionTerm(pool, {});
  const std::vector<Rule> rules = AllRules(Chunked());
  EGraph whole(&pool), stopped(&pool);
  whole.AddTerm(term);
  stopped.AddTerm(term);
  const int64_t before = stopped.Saturate(rules, {.iterations = 0}).nodes;
  const Saturation at_once = stopped.Saturate(rules, {.nodes = before});
  EXPECT_EQ(at_once.outcome, Outcome::kNodeLimit);
  EXPECT_EQ(at_once.iterations, 0);
  EXPECT_GT(at_once.nodes, before);
  EXPECT_LT(at_once.nodes, whole.Saturate(rules, {.iterations = 1}).nodes);
}

TEST(EGraph, TermsOfEqualArgumentsBecomeEqual) {
  TermPool pool;
  pool.DeclareRank({"p", {"tokens"}});
  const TermId a = pool.Input({.name = "A", .ranks = {"p"}});
  const TermId b = pool.Input({.name = "B", .ranks = {"p"}});
  EGraph graph(&pool);
  const TermId exp_a = graph.AddTerm(pool.Unary(Function::kExp, pool.Unary(Function::kExp, a)));
  const TermId exp_b = graph.AddTerm(pool.Unary(Function::kExp, pool.Unary(Function::kExp, b)));
  EXPECT_NE(graph.Find(exp_a), graph.Find(exp_b));
  const Rule same{"A is B", "none", [b](TermGraph& terms, const Term& node) {
                    std::vector<TermId> equal;
                    if (node.access.tensor == "A") {
                      equal.push_back(terms.Add(
                          {.kind = TermKind::kInput, .access = {"B", {{.terms = {{"p"}}}}}}));
                    }
                    return equal;
                  }};
  EXPECT_EQ(graph.Saturate({same}, {}).outcome, Outcome::kSaturated);
  EXPECT_EQ(graph.Find(exp_a), graph.Find(exp_b));
  EXPECT_EQ(graph.NodesOf(exp_a).size(), 1u);
}

TEST(EGraph, AShiftWithARankOfItsOwnKeepsIt) {
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId s = pool.Input({.name = "S", .ranks = {"p", "m"}});
  const TermId g = pool.Input({.name = "G", .ranks = {"p", "e"}});
  const TermId weight = pool.Unary(Function::kExp, pool.Map(Op::kSubtract, s, g));
  const TermId x = pool.Input({.name = "X", .ranks = {"m", "f"}});
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(
      pool.Map(Op::kDivide, pool.Reduce(Op::kAdd, "m", pool.Map(Op::kMultiply, weight, x)),
               pool.Reduce(Op::kAdd, "m", weight)));
  EXPECT_EQ(graph.Saturate(AllRules(Chunked()), {}).outcome, Outcome::kSaturated);
  for (const TermId variant : VariantsOf(graph, pool, root, kAll).terms) {
    EXPECT_EQ(pool.RanksOf(variant), (std::vector<std::string>{"p", "e", "f"}));
  }
}

// Each of 60 terms uses the previous one twice. As a tree the last one has 2^60 nodes.
TEST(TermPool, TermsThatShareTheirPartsAreNotWalkedAsTrees) {
  TermPool pool;
  pool.DeclareRank({"m", {"context"}});
  TermId term = Split(pool, {"m", "c", "j", 3}, pool.Input({.name = "A", .ranks = {"m"}}));
  for (int i = 0; i < 60; ++i) term = pool.Map(Op::kAdd, term, term);
  term = pool.Reduce(Op::kAdd, "c", pool.Reduce(Op::kAdd, "j", term));
  EXPECT_LE(std::ssize(TermText(pool, term)), 2 * kMaxTermText);
  EXPECT_EQ(AllEinsums(Lower(pool, {{"Z", term}})).size(), 60u);
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(PushSplits(pool, term));
  EXPECT_EQ(VariantsOf(graph, pool, root, kAll).terms, (std::vector{PushSplits(pool, term)}));
}

TEST(Extract, ReportsMoreVariantsThanTheLimit) {
  TermPool pool;
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(AttentionTerm(pool, {}));
  graph.Saturate(AllRules({}), {});
  EXPECT_EQ(VariantsOf(graph, pool, root, 3).terms.size(), 3u);
  EXPECT_TRUE(VariantsOf(graph, pool, root, 3).complete);
  EXPECT_EQ(VariantsOf(graph, pool, root, 2).terms.size(), 2u);
  EXPECT_FALSE(VariantsOf(graph, pool, root, 2).complete);
}

TEST(Extract, TheFirstOfTheCheapestIsTaken) {
  const std::vector<double> costs = {3, 1, 2, 1};
  const PricedTerm cheapest = Cheapest({0, 1, 2, 3}, [&](TermId term) { return costs[term]; });
  EXPECT_EQ(cheapest.term, 1);
  EXPECT_EQ(cheapest.cost, 1);
}

}  // namespace
}  // namespace sluice::einsum
