#include "cascades/einsum/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/egraph.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/text.h"
#include "tests/cascades/einsum/rule_check.h"

namespace sluice::einsum {
namespace {

const Partition kThrees{"m", "c", "j", 3};

// The variants of one attention.
struct Family {
  TermPool pool;
  TermId term;
  std::vector<TermId> variants;

  explicit Family(const AttentionShape& shape, const RuleOptions& options, int64_t limit = 5000) {
    term = AttentionTerm(pool, shape);
    EGraph graph(&pool);
    const TermId root = graph.AddTerm(term);
    EXPECT_EQ(graph.Saturate(AllRules(options), {}).outcome, Outcome::kSaturated);
    variants = VariantsOf(graph, pool, root, limit).terms;
  }

  // Returns the first variant whose text has each of `words`.
  TermId With(const std::vector<std::string>& words) const {
    for (const TermId variant : variants) {
      const std::string text = TermText(pool, variant);
      if (std::ranges::all_of(words, [&](const std::string& word) {
            return text.find(word) != std::string::npos;
          })) {
        return variant;
      }
    }
    ADD_FAILURE() << "no variant with " << words.at(0);
    return term;
  }
};

// Interprets every `stride`-th variant and compares it with the definition of the first term.
void ExpectEqualValues(Family& family, uint32_t stride) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  TermValues values = RandomValues(family.pool, {family.term}, seed);
  const std::vector<double> expected = values.All(family.term, family.pool.RanksOf(family.term));
  int checked = 0;
  for (size_t i = 0; i < family.variants.size(); i += stride) {
    const TermId variant = family.variants[i];
    EXPECT_EQ(Difference(expected, Lowered(family.pool, variant, values)), "")
        << TermText(family.pool, variant);
    const Cascade cascade = Lower(family.pool, {{"Z", variant}}, "attention");
    const auto read = Parse(Print(cascade));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, cascade) << Print(cascade);
    ++checked;
  }
  EXPECT_GT(checked, 20);
}

std::vector<std::string> NamesOf(const std::vector<Einsum>& einsums) {
  std::vector<std::string> names;
  for (const Einsum& einsum : einsums) names.push_back(einsum.out.tensor);
  return names;
}

// Returns the names of the results, with the results of an iteration's body in braces.
std::vector<std::string> ResultsOf(const Cascade& cascade) {
  std::vector<std::string> names;
  for (const Statement& statement : cascade.statements) {
    if (const auto* einsum = std::get_if<Einsum>(&statement)) {
      names.push_back(einsum->out.tensor);
      continue;
    }
    names.push_back("{");
    std::ranges::copy(NamesOf(std::get<Iteration>(statement).body), std::back_inserter(names));
    names.push_back("}");
  }
  return names;
}

Home HomeOf(const Cascade& cascade, const std::string& name) {
  const auto found = std::ranges::find(cascade.tensors, name, &Tensor::name);
  return found == cascade.tensors.end() ? Home::kTile : found->home;
}

using Names = std::vector<std::string>;

TEST(Lower, EveryVariantOfAttentionHasItsValue) {
  Family causal({}, {.partitions = {kThrees}});
  ExpectEqualValues(causal, 1);
  Family all_keys({.causal = false}, {.partitions = {kThrees}});
  ExpectEqualValues(all_keys, 1);
}

TEST(Lower, VariantsOfExclusiveAttentionHaveItsValue) {
  const RuleOptions options{.partitions = {kThrees}, .own_value = OwnValueOfAttention()};
  Family squared({.xsa = XsaForm::kSquared}, options);
  ExpectEqualValues(squared, 7);
  Family norm({.xsa = XsaForm::kNorm}, options);
  ExpectEqualValues(norm, 53);
  Family gated({.xsa = XsaForm::kSquared, .gate = true}, options);
  ExpectEqualValues(gated, 31);
}

TEST(Lower, VariantsWithScaleGainAndSoftCapHaveTheirValue) {
  Family family({.scale = 0.5, .soft_cap = 4, .query_gain = true}, {.partitions = {kThrees}});
  ExpectEqualValues(family, 29);
}

// Each query admits the last two of 9 keys, so that two of three chunks have no maximum. The fourth
// query has no key at all.
TEST(Lower, AFoldHasItsValueAfterChunksWithoutAKey) {
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId s = pool.Input({.name = "S", .ranks = {"p", "m"}});
  const std::vector<Condition> where = {
      {{.terms = {{"p"}}, .offset = 5}, Comparison::kLess, {.terms = {{"m"}}}}};
  const TermId max = pool.Reduce(Op::kMax, "m", s, where);
  const TermId weight = pool.Unary(Function::kExp, pool.Map(Op::kSubtract, s, max));
  const TermId x = pool.Input({.name = "X", .ranks = {"m", "f"}});
  const TermId term =
      pool.Map(Op::kDivide, pool.Reduce(Op::kAdd, "m", pool.Map(Op::kMultiply, weight, x), where),
               pool.Reduce(Op::kAdd, "m", weight, where));
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(term);
  graph.Saturate(AllRules({.partitions = {kThrees}}), {});
  const std::vector<double> scores = {1, -2, 0, 3, 1, 2, -1, 0.5, 2};
  std::vector<double> all;
  for (int p = 0; p < 4; ++p) all.insert(all.end(), scores.begin(), scores.end());
  TermValues values(pool, {{"tokens", 4}, {"context", 9}, {"head_dim", 1}},
                    {{"S", all}, {"X", {9, 8, 7, 6, 5, 4, 3, 2, 1}}});
  const std::vector<double> expected = values.All(term, {"p", "f"});
  EXPECT_EQ(expected[2], 1);
  EXPECT_EQ(expected[3], 0);  // no value
  const Variants variants = VariantsOf(graph, pool, root, 1000);
  EXPECT_TRUE(variants.complete);
  EXPECT_GT(variants.terms.size(), 10u);
  for (const TermId variant : variants.terms) {
    EXPECT_EQ(Difference(expected, Lowered(pool, variant, values)), "") << TermText(pool, variant);
  }
}

// A fold of a fold over the same rank. Both read the scores at each place.
TEST(Lower, NestedFoldsHaveSeparateIterations) {
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId s = pool.Input({.name = "S", .ranks = {"p", "m"}});
  const TermId x = pool.Input({.name = "X", .ranks = {"m", "f"}});
  const TermId scores = pool.Unary(Function::kTanh, pool.Map(Op::kAdd, s, s));
  const TermId inner = pool.Fold("m", scores, x);
  const TermId sum = pool.Reduce(Op::kAdd, "f", pool.Map(Op::kMultiply, inner, x));
  const uint32_t seed = std::random_device{}();
  for (const TermId term :
       {pool.Fold("m", scores, sum), pool.Fold("m", sum, scores), pool.Fold("m", scores, inner),
        pool.Fold("m", pool.Map(Op::kAdd, scores, sum), scores)}) {
    TermValues values = RandomValues(pool, {term}, seed);
    EXPECT_EQ(Difference(values.All(term, pool.RanksOf(term)), Lowered(pool, term, values)), "")
        << TermText(pool, term) << ", seed " << seed;
  }
}

TEST(Lower, AFoldOfChunksWithinPartialsHasItsValue) {
  Family family({}, {.partitions = {{"m", "c", "j", 4}, {"j", "d", "k", 2}}});
  ExpectEqualValues(family, 5);
}

TEST(Lower, TheTermAsWrittenIsSixEinsums) {
  Family family({}, {});
  EXPECT_EQ(ResultsOf(Lower(family.pool, {{"Z", family.term}})),
            (Names{"S", "G", "N", "D", "A", "Z"}));
}

TEST(Lower, ASharedTermIsComputedOnce) {
  Family family({}, {});
  const Cascade cascade = Lower(family.pool, {{"Z", family.term}});
  const std::vector<PlacedEinsum> einsums = AllEinsums(cascade);
  EXPECT_EQ(std::ranges::count_if(
                einsums,
                [](const PlacedEinsum& placed) { return placed.einsum->unary == Function::kExp; }),
            1);
}

TEST(Lower, AConditionOnARankThatAnInnerSumHidesIsKeptApart) {
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId s = pool.Input({.name = "S", .ranks = {"p", "m"}});
  const TermId term =
      pool.Reduce(Op::kAdd, "p", pool.Reduce(Op::kAdd, "m", s), {CausalCondition()});
  for (uint32_t seed = 0; seed < 5; ++seed) {
    TermValues values = RandomValues(pool, {term}, seed);
    EXPECT_EQ(Difference(values.All(term, {"m"}), Lowered(pool, term, values)), "");
  }
}

TEST(Lower, NumeratorAndDenominatorOfAFoldShareOneIteration) {
  Family family({}, {.partitions = {kThrees}});
  const Cascade cascade = Lower(family.pool, {{"Z", family.With({"(/ (fold c", "(fold c"})}});
  EXPECT_EQ(ResultsOf(cascade), (Names{"{", "S", "G", "N", "Y", "D", "RG", "E", "F", "TY", "UY",
                                       "RY", "TD", "UD", "RD", "}", "Z"}));
  for (const char* name : {"S", "G", "N", "Y", "D", "RY"}) {
    EXPECT_EQ(HomeOf(cascade, name), Home::kTile) << name;
  }
}

TEST(Lower, PartialsOfAMergeAreComputedBeforeItsIterationAndLiveInTheArena) {
  Family family({}, {.partitions = {kThrees}});
  std::vector<TermId> merges;
  for (const TermId variant : family.variants) {
    const std::string text = TermText(family.pool, variant);
    if (text.starts_with("(/ (merge") && text.find("(fold") == std::string::npos &&
        text.find("(reduce + c") == std::string::npos &&
        text.find("reduce + m") == std::string::npos) {
      merges.push_back(variant);
    }
  }
  ASSERT_EQ(merges.size(), 1u);
  const Cascade cascade = Lower(family.pool, {{"Z", merges[0]}});
  EXPECT_EQ(ResultsOf(cascade), (Names{"S", "G", "N", "Y", "D", "{", "RG", "E", "F", "TY", "UY",
                                       "RY", "TD", "UD", "RD", "}", "Z"}));
  for (const char* name : {"G", "Y", "D"}) EXPECT_EQ(HomeOf(cascade, name), Home::kArena) << name;
  for (const char* name : {"S", "N", "RY"}) EXPECT_EQ(HomeOf(cascade, name), Home::kTile) << name;
}

TEST(Lower, ALogSumExpTakesItsMaximumFromTheIteration) {
  TermPool pool;
  pool.DeclareRank({"p", {"tokens"}});
  pool.DeclareRank({"m", {"vocab"}});
  const TermId x = pool.Input({.name = "X", .ranks = {"p", "m"}});
  const TermId term =
      pool.Unary(Function::kLog, pool.Reduce(Op::kAdd, "m", pool.Unary(Function::kExp, x)));
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(term);
  graph.Saturate(AllRules({.partitions = {kThrees}}), {});
  TermValues values = RandomValues(pool, {term}, 7);
  std::vector<Names> shapes;
  for (const TermId variant : VariantsOf(graph, pool, root, 100).terms) {
    EXPECT_EQ(Difference(values.All(term, {"p"}), Lowered(pool, variant, values)), "");
    shapes.push_back(ResultsOf(Lower(pool, {{"Z", variant}})));
  }
  const Names one_pass = {"{", "G", "D", "RG", "E", "F", "TD", "UD", "RD", "}", "B", "Z"};
  EXPECT_NE(std::ranges::find(shapes, one_pass), shapes.end());
}

TEST(Lower, OutputsHaveTheirNamesAndHintsAreTakenIfUnused) {
  Family family({}, {});
  TermPool& pool = family.pool;
  const TermId scores = pool.TermOf(family.term).args[0];
  const TermId shares = pool.TermOf(scores).args[0];
  const Cascade cascade = Lower(pool, {{"Z", family.term}, {"Copy", family.term}, {"P", shares}},
                                "attention", {{"Weights", pool.TermOf(shares).args[0]}});
  EXPECT_EQ(cascade.name, "attention");
  EXPECT_EQ(ResultsOf(cascade), (Names{"S", "G", "Weights", "D", "P", "Z", "Copy"}));
  EXPECT_EQ(HomeOf(cascade, "P"), Home::kArena);
  EXPECT_EQ(HomeOf(cascade, "Weights"), Home::kTile);
}

TEST(Lower, AnInputAndAStreamCanBeOutputs) {
  Family family({}, {.partitions = {kThrees}});
  TermPool& pool = family.pool;
  const TermId ratio = family.With({"(/ (fold c"});
  const TermId numerator = pool.TermOf(ratio).args[0];
  const TermId q = pool.Input({.name = "Q", .ranks = {"b", "p", "h", "g", "e"}});
  const Cascade cascade = Lower(pool, {{"Same", q}, {"Numerator", numerator}});
  EXPECT_EQ(ResultsOf(cascade).front(), "Same");
  EXPECT_EQ(ResultsOf(cascade).back(), "Numerator");
  TermValues values = RandomValues(pool, {numerator}, 3);
  EXPECT_EQ(
      Difference(values.All(numerator, pool.RanksOf(numerator)), Lowered(pool, numerator, values)),
      "");
}

}  // namespace
}  // namespace sluice::einsum
