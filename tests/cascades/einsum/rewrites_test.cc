#include "cascades/einsum/rewrites.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/rewrites_match.h"
#include "tests/cascades/einsum/rule_check.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

const Partition kChunks{"m", "c", "j", 3};

RuleOptions EveryRule() { return {.partitions = {kChunks}, .own_value = OwnValueOfAttention()}; }

// The conditions of causal attention to the last two positions, which leave the first chunks of
// later queries without a key.
std::vector<Condition> Window() {
  return {CausalCondition(),
          {.left = {.terms = {{"p"}}, .offset = -2, .end_of = "m"},
           .comparison = Comparison::kLess,
           .right = {.terms = {{"m"}}, .end_of = "p"}}};
}

// Terms to start from, over the ranks of attention.
struct Start {
  TermPool pool;

  Start() { AttentionTerm(pool, {}); }

  TermId Of(const std::string& name, std::vector<std::string> ranks) {
    return pool.Input({.name = name, .ranks = std::move(ranks)});
  }
  TermId Times(TermId a, TermId b) { return pool.Map(Op::kMultiply, a, b); }
  TermId Over(TermId a, TermId b) { return pool.Map(Op::kDivide, a, b); }
  TermId Less(TermId a, TermId b) { return pool.Map(Op::kSubtract, a, b); }
  TermId Sum(const std::string& rank, TermId a, std::vector<Condition> where = {}) {
    return pool.Reduce(Op::kAdd, rank, a, std::move(where));
  }
  TermId Max(const std::string& rank, TermId a, std::vector<Condition> where = {}) {
    return pool.Reduce(Op::kMax, rank, a, std::move(where));
  }
  TermId Exp(TermId a) { return pool.Unary(Function::kExp, a); }

  TermId Attention(const AttentionShape& shape) { return AttentionTerm(pool, shape); }
  // Returns sum of exp(s - max s) x, the numerator of a softmax.
  TermId Numerator(std::vector<Condition> of_sum, std::vector<Condition> of_max) {
    const TermId s = Of("S", {"p", "m"});
    return Sum("m", Times(Exp(Less(s, Max("m", s, std::move(of_max)))), Of("X", {"m", "f"})),
               std::move(of_sum));
  }
  // Returns the ratio of two sums of exponentials, shifted by g.
  TermId Ratio(TermId g) {
    const TermId weight = Exp(Less(Of("S", {"p", "m"}), g));
    return Over(Sum("m", Times(weight, Of("X", {"m", "f"})), {CausalCondition()}),
                Sum("m", weight, {CausalCondition()}));
  }
  // Returns the first result of the rule for the whole term.
  TermId After(const std::string& rule, TermId term) {
    for (const Rule& each : AllRules(EveryRule())) {
      if (!each.name.starts_with(rule)) continue;
      return each.apply(pool, pool.TermOf(term)).at(0);
    }
    ADD_FAILURE() << "no rule " << rule;
    return term;
  }
  TermId Chunks(const std::vector<Condition>& where = {CausalCondition()}) {
    return After("a shifted sum", Numerator(where, where));
  }
  TermId LogSumExp(std::vector<Condition> where = {CausalCondition()}) {
    return pool.Unary(Function::kLog, Sum("m", Exp(Of("S", {"p", "m"})), std::move(where)));
  }
  // Returns y minus its part along v, which is a value of the query, or of a key.
  TermId Projected(TermId y, TermId v) { return Less(y, Times(Sum("f", Times(y, v)), v)); }
};

Condition StrictlyCausal() {
  Condition condition = CausalCondition();
  condition.comparison = Comparison::kLess;
  return condition;
}

using MakeTerm = std::function<TermId(Start&)>;

uint32_t SeedOfTest() {
  static const uint32_t seed = std::random_device{}();
  ::testing::Test::RecordProperty("seed", static_cast<int>(seed));
  return seed;
}

struct SoundRow {
  const char* name;
  const char* rule;  // how the rule's name starts
  MakeTerm term;
};
class RewritesKeepValues : public TableTest<SoundRow> {};

TEST_P(RewritesKeepValues, OnRandomSizes) {
  const uint32_t seed = SeedOfTest();
  Start start;
  const TermId term = row().term(start);
  int applications = 0;
  for (const Rule& rule : AllRules(EveryRule())) {
    if (!rule.name.starts_with(row().rule)) continue;
    const RuleFinding finding = CheckRule(start.pool, rule, term, seed);
    EXPECT_EQ(finding.counterexample, "");
    applications += finding.applications;
  }
  EXPECT_GT(applications, 0) << TermText(start.pool, term);
}

const SoundRow kSoundRows[] = {
    {"ASplitReachesInputs", "a split",
     [](Start& s) {
       return Split(s.pool, kChunks, s.Times(s.Of("S", {"p", "m"}), s.Of("L", {"f", "m"})));
     }},
    {"ASplitReachesConditions", "a split",
     [](Start& s) {
       return Split(s.pool, kChunks, s.Sum("p", s.Of("S", {"p", "m"}), {CausalCondition()}));
     }},
    {"ASplitOfAnInput", "a split",
     [](Start& s) {
       return Split(s.pool, kChunks, s.Of("S", {"p", "m"}));
     }},
    {"ASplitOfATermWithoutTheRank", "a split",
     [](Start& s) {
       return Split(s.pool, kChunks, s.Of("Q1", {"p", "e"}));
     }},
    {"DivisionPastAProduct", "a division leaves a product",
     [](Start& s) { return s.Attention({}); }},
    {"DivisionPastASum", "a division leaves a sum",
     [](Start& s) {
       return s.Sum("m", s.Over(s.Of("S", {"p", "m"}), s.Of("D1", {"p"})), {CausalCondition()});
     }},
    {"ADifferenceDividedOnce", "a difference is divided once",
     [](Start& s) {
       const TermId d = s.Of("D1", {"p"});
       return s.Less(s.Over(s.Of("S", {"p", "m"}), d), s.Over(s.Of("X", {"m", "f"}), d));
     }},
    {"TwoDivisorsOfAQuotient", "divisors of a quotient",
     [](Start& s) {
       return s.Over(s.Over(s.Of("S", {"p", "m"}), s.Of("D1", {"p"})), s.Of("D2", {"m"}));
     }},
    {"AFactorLeavesASum", "a factor leaves a sum",
     [](Start& s) {
       return s.Sum("m", s.Times(s.Of("S", {"p", "m"}), s.Of("D1", {"p"})), {CausalCondition()});
     }},
    {"AScaleAndAGainReachTheQueries", "a scale is folded",
     [](Start& s) { return s.Attention({.scale = 0.125, .query_gain = true}); }},
    {"AScaleOfAConstant", "constants are multiplied",
     [](Start& s) {
       return s.Times(s.pool.Constant(3), s.Times(s.Of("D1", {"p"}), s.pool.Constant(0.25)));
     }},
    {"TheDivisorOfASoftCap", "a constant divisor",
     [](Start& s) { return s.Attention({.soft_cap = 30}); }},
    {"AConstantOfEachQueryInTheExponent", "a softmax is shifted",
     [](Start& s) { return s.Ratio(s.Of("D1", {"p"})); }},
    {"AShiftWithARankThatTheScoresLack", "a softmax is shifted",
     [](Start& s) {
       return s.Ratio(s.Of("Q1", {"p", "e"}));
     }},
    {"AnExponentWithoutAShift", "a softmax is shifted",
     [](Start& s) {
       const TermId weight = s.Exp(s.Of("S", {"p", "m"}));
       return s.Over(s.Sum("m", s.Times(weight, s.Of("X", {"m", "f"}))), s.Sum("m", weight));
     }},
    {"ChunksOfCausalKeys", "a shifted sum",
     [](Start& s) { return s.Numerator({CausalCondition()}, {CausalCondition()}); }},
    {"ChunksOfAllKeys", "a shifted sum", [](Start& s) { return s.Numerator({}, {}); }},
    {"ChunksOfASumThatTheMaximumCovers", "a shifted sum",
     [](Start& s) { return s.Numerator({StrictlyCausal()}, {CausalCondition()}); }},
    {"ChunksOfADenominator", "a shifted sum", [](Start& s) { return s.Attention({}); }},
    {"ALogSumExpOfBlocks", "a log-sum-exp", [](Start& s) { return s.LogSumExp(); }},
    {"ChunksOfAWindowOfKeys", "a shifted sum",
     [](Start& s) { return s.Numerator(Window(), Window()); }},
    {"ALogSumExpOfAWindow", "a log-sum-exp", [](Start& s) { return s.LogSumExp(Window()); }},
    {"AFoldOfChunks", "chunks are computed", [](Start& s) { return s.Chunks(); }},
    {"AFoldWhoseFirstChunksAreEmpty", "chunks are computed",
     [](Start& s) { return s.Chunks(Window()); }},
    {"AMergeOfPartials", "partials", [](Start& s) { return s.Chunks(); }},
    {"AMergeWhoseFirstPartialsAreEmpty", "partials", [](Start& s) { return s.Chunks(Window()); }},
    {"OwnValuesExcludedFromASum", "own values",
     [](Start& s) {
       return s.Projected(s.Numerator({CausalCondition()}, {CausalCondition()}),
                          s.Of("O1", {"p", "f"}));
     }},
    {"OwnValuesExcludedFromAFold", "own values",
     [](Start& s) {
       return s.Projected(s.After("chunks are computed", s.Chunks()), s.Of("O1", {"p", "f"}));
     }},
    {"OwnValuesExcludedFromAMerge", "own values",
     [](Start& s) {
       return s.Projected(s.After("partials", s.Chunks()), s.Of("O1", {"p", "f"}));
     }},
    {"GatedOwnValues", "own values",
     [](Start& s) { return s.Attention({.xsa = XsaForm::kSquared, .gate = true}); }},
    {"TheSelfTermInTheNormForm", "the self term",
     [](Start& s) { return s.Attention({.xsa = XsaForm::kNorm}); }},
    {"TheSelfTermInTheSquaredForm", "the self term",
     [](Start& s) { return s.Attention({.xsa = XsaForm::kSquared}); }},
};
SLUICE_TABLE(RewritesKeepValues, kSoundRows);

TEST(Rewrites, EachHasARow) {
  for (const Rule& rule : AllRules(EveryRule())) {
    EXPECT_TRUE(std::ranges::any_of(kSoundRows, [&](const SoundRow& row) {
      return rule.name.starts_with(row.rule);
    })) << rule.name;
  }
}

TEST(Rewrites, HaveDistinctNames) {
  std::set<std::string> names;
  for (const Rule& rule : AllRules(EveryRule())) EXPECT_TRUE(names.insert(rule.name).second);
}

// Returns how often the self term is left out of the term, which keeps its value.
int SelfTermsLeftOut(TermPool& pool, TermId term) {
  const std::vector<Rule> rules = XsaRules(OwnValueOfAttention());
  const auto rule = std::ranges::find(rules, "the self term is left out", &Rule::name);
  if (rule == rules.end()) {
    ADD_FAILURE() << "no such rule";
    return -1;
  }
  const uint32_t seed = std::random_device{}();
  const RuleFinding finding = CheckRule(pool, *rule, term, seed);
  EXPECT_EQ(finding.counterexample, "") << "seed " << seed;
  return finding.applications;
}

TEST(Rewrites, AGateKeepsTheSelfTerm) {
  for (const XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    Start start;
    EXPECT_EQ(SelfTermsLeftOut(start.pool, start.Attention({.xsa = form})), 1);
    EXPECT_EQ(SelfTermsLeftOut(start.pool, start.Attention({.xsa = form, .gate = true})), 0);
  }
}

TEST(Rewrites, TheSelfTermIsLeftOutOnlyIfTheOwnValueIsKnownNotToBeZero) {
  for (const Rule& rule : AllRules({})) EXPECT_FALSE(rule.name.starts_with("the self term"));
}

TEST(Rewrites, AProjectionOfSomeFeaturesKeepsTheSelfTerm) {
  Start start;
  const TermId y = start.Attention({});
  const TermId v = start.Of("O", {"b", "p", "h", "f"});
  const Condition first{.left = {.terms = {{"f"}}},
                        .comparison = Comparison::kLess,
                        .right = {.terms = {}, .offset = 1}};
  const TermId along =
      start.Over(start.Sum("f", start.Times(y, v), {first}), start.Sum("f", start.Times(v, v)));
  EXPECT_EQ(SelfTermsLeftOut(start.pool, start.Less(y, start.Times(along, v))), 0);
}

// O is here the value before the query's own.
TEST(Rewrites, TheValueOfAnotherPositionKeepsTheSelfTerm) {
  Start start;
  TermPool& pool = start.pool;
  const TermId y = start.Attention({});
  const Index before{.terms = {{"p"}}, .offset = -1};
  const TermId v = pool.Input({.name = "O", .ranks = {"b", "p", "h", "f"}},
                              {{.terms = {{"b"}}}, before, {.terms = {{"h"}}}, {.terms = {{"f"}}}});
  const TermId along =
      start.Over(start.Sum("f", start.Times(y, v)), start.Sum("f", start.Times(v, v)));
  EXPECT_EQ(SelfTermsLeftOut(pool, start.Less(y, start.Times(along, v))), 0);
}

}  // namespace
}  // namespace sluice::einsum
