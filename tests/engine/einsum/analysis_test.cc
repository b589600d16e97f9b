#include "engine/einsum/analysis.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "engine/einsum/levels.h"
#include "engine/einsum/paper.h"
#include "engine/einsum/point_count.h"
#include "engine/einsum/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Cascade ParseOrDie(std::string_view text) {
  auto cascade = Parse(text);
  if (!cascade.ok()) ADD_FAILURE() << cascade.status() << " of " << text;
  SLUICE_CHECK(cascade.ok());
  return *std::move(cascade);
}

Cascade Paper(std::string_view name) {
  for (const PaperCascade& each : PaperCascades()) {
    if (each.name == name) return ParseOrDie(each.text);
  }
  SLUICE_CHECK(false);
}

// The last statement of the text is an einsum.
struct RolesRow {
  const char* name;
  const char* ranks;  // of which each has 2 places
  const char* text;
  const char* description;
  std::vector<RankRole> roles;
};

class RolesTable : public TableTest<RolesRow> {};

TEST_P(RolesTable, AreFound) {
  std::string text;
  for (const char* rank = row().ranks; *rank != '\0'; ++rank) {
    absl::StrAppend(&text, "rank ", std::string(1, *rank), " = 2\n");
  }
  const Cascade cascade = ParseOrDie(absl::StrCat(text, row().text));
  const EinsumRoles roles = RolesOf(*AllEinsums(cascade).back().einsum);
  EXPECT_EQ(Describe(roles), row().description);
  EXPECT_EQ(roles.roles, row().roles);
}

const RolesRow kRolesRows[] = {
    {.name = "AWeightForEachPositionIsAGroupedGemm",
     .ranks = "bdel",
     .text = "tensor A[b, l, d] arena tensor W[l, d, e] weight "
             "Z[b, l, e] = A[b, l, d] . W[l, d, e] :: map x(and) reduce d +(or)",
     .description = "grouped GEMM b x d x e for each l",
     .roles =
         {{"b", Role::kLeft}, {"l", Role::kBatch}, {"e", Role::kRight}, {"d", Role::kContraction}}},
    {.name = "QueriesThatShareKeysAreOneGroup",
     .ranks = "hgpme",
     .text = "tensor Q[p, h, g, e] arena tensor K[m, h, e] kv "
             "S[h, g, p, m] = Q[p, h, g, e] . K[m, h, e] :: map x(and) reduce e +(or)",
     .description = "grouped GEMM (g, p) x e x m for each h",
     .roles = {{"h", Role::kBatch},
               {"g", Role::kLeft},
               {"p", Role::kLeft},
               {"m", Role::kRight},
               {"e", Role::kContraction}}},
    {.name = "OneFreeSideIsAGemv",
     .ranks = "de",
     .text = "tensor A[d] arena tensor W[e, d] weight "
             "Z[e] = A[d] . W[e, d] :: map x(and) reduce d +(or)",
     .description = "GEMV d x e",
     .roles = {{"e", Role::kRight}, {"d", Role::kContraction}}},
    {.name = "NoFreeSideIsADotProduct",
     .ranks = "bd",
     .text = "tensor A[b, d] arena tensor B[b, d] arena "
             "Z[b] = A[b, d] . B[b, d] :: map x(and) reduce d +(or)",
     .description = "dot product d for each b",
     .roles = {{"b", Role::kBatch}, {"d", Role::kContraction}}},
    {.name = "NoCommonRankIsAnOuterProduct",
     .ranks = "ij",
     .text = "tensor A[i] arena tensor B[j] arena Z[i, j] = A[i] . B[j] :: map x(and)",
     .description = "outer product i x j",
     .roles = {{"i", Role::kLeft}, {"j", Role::kRight}}},
    {.name = "AProductWithACommonRankIsOneForEach",
     .ranks = "bij",
     .text = "tensor A[b, i] arena tensor B[b, j] arena Z[i, b, j] = A[b, i] . B[b, j]",
     .description = "outer product i x j for each b",
     .roles = {{"i", Role::kLeft}, {"b", Role::kBatch}, {"j", Role::kRight}}},
    {.name = "AMaximumOfProductsIsNoGemm",
     .ranks = "ijk",
     .text = "tensor A[i, k] arena tensor B[k, j] arena "
             "Z[i, j] = A[i, k] . B[k, j] :: map x(and) reduce k max(or)",
     .description = "reduction over k",
     .roles = {{"i", Role::kLeft}, {"j", Role::kRight}, {"k", Role::kContraction}}},
    {.name = "AMaximumIsAReduction",
     .ranks = "pm",
     .text = "tensor S[p, m] arena G[p] = S[p, m] :: reduce m max(or)",
     .description = "reduction over m",
     .roles = {{"p", Role::kLeft}, {"m", Role::kReduced}}},
    {.name = "ASumOfExponentialsIsNoGemm",
     .ranks = "pm",
     .text = "tensor S[p, m] arena tensor G[p, m] arena "
             "D[p] = S[p, m] . G[p, m] :: map -(left) unary exp reduce m +(or)",
     .description = "reduction over m",
     .roles = {{"p", Role::kBatch}, {"m", Role::kContraction}}},
    {.name = "ASumOfSquashedProductsIsNoGemm",
     .ranks = "ijk",
     .text = "tensor A[i, k] arena tensor B[k, j] arena "
             "Z[i, j] = A[i, k] . B[k, j] :: map x(and) unary tanh reduce k +(or)",
     .description = "reduction over k",
     .roles = {{"i", Role::kLeft}, {"j", Role::kRight}, {"k", Role::kContraction}}},
    {.name = "AScaleIsElementwise",
     .ranks = "pm",
     .text = "tensor S[p, m] arena Z[p, m] = S[p, m] . 0.125 :: map x(and)",
     .description = "elementwise p x m",
     .roles = {{"p", Role::kLeft}, {"m", Role::kLeft}}},
    {.name = "AnotherOrderIsAPermutation",
     .ranks = "bhl",
     .text = "tensor A[b, l, h] arena Z[b, h, l] = A[b, l, h]",
     .description = "permute b x h x l",
     .roles = {{"b", Role::kLeft}, {"h", Role::kLeft}, {"l", Role::kLeft}}},
    {.name = "ARankOfTheResultAloneIsBroadcast",
     .ranks = "bh",
     .text = "tensor A[b] arena Z[b, h] = A[b]",
     .description = "copy b x h",
     .roles = {{"b", Role::kLeft}, {"h", Role::kBroadcast}}},
};
SLUICE_TABLE(RolesTable, kRolesRows);

// What the texts of the rows may use.
constexpr const char* kKeysByChunks =
    "rank m = context rank c = context / 4 rank j = 4 rank e = head_dim rank f = head_dim "
    "tensor Q[e] arena tensor K[m, e] kv tensor V[m, f] kv ";

struct PassesRow {
  const char* name;
  const char* paper = nullptr;  // instead of a text
  const char* text = "";
  const char* rank = "context";
  int passes = 0;
};

class PassesTable : public TableTest<PassesRow> {};

TEST_P(PassesTable, AreCounted) {
  const Cascade cascade = row().paper != nullptr
                              ? Paper(row().paper)
                              : ParseOrDie(absl::StrCat(kKeysByChunks, row().text));
  EXPECT_EQ(Passes(cascade, row().rank), row().passes);
}

const PassesRow kPassesRows[] = {
    // S and G read the keys once, N and D once more because G is reduced over m, A and Y a third
    // time because D is.
    {.name = "ThreePass", .paper = "attention_three_pass", .passes = 3},
    // Y divides after its sum over m, so that nothing iterates over m after D.
    {.name = "DeferredDivision", .paper = "attention_deferred_division", .passes = 2},
    // L, N and B need their own chunk alone. G is reduced over all chunks, and E and W iterate over
    // them again.
    {.name = "TwoPass", .paper = "attention_two_pass", .passes = 2},
    // The running maximum R is carried, not reduced.
    {.name = "OnePass", .paper = "attention_one_pass", .passes = 1},
    // Within a chunk the maximum L ends before N begins.
    {.name = "OnePassIsTwoWithinAChunk", .paper = "attention_one_pass", .rank = "j", .passes = 2},
    {.name = "ARankNamesItsFamily", .paper = "attention_one_pass", .rank = "c", .passes = 1},
    {.name = "QueriesAreNotReduced",
     .paper = "attention_three_pass",
     .rank = "tokens",
     .passes = 1},
    {.name = "HeadDimensionsAreTwoFibers",
     .paper = "attention_three_pass",
     .rank = "head_dim",
     .passes = 1},
    {.name = "AnUnknownRankHasNone", .paper = "attention_three_pass", .rank = "z", .passes = 0},
    // The sum of squares reads X, and its quotient reads X again.
    {.name = "ANormIsTwo",
     .text = "rank d = hidden tensor X[d] arena tensor Y[d] arena "
             "S = X[d] . X[d] :: map x(and) reduce d +(or) Y[d] = X[d] . S :: map /(and)",
     .rank = "hidden",
     .passes = 2},
    // H is a function of the maximum, which it passes on.
    {.name = "ABarrierReachesThroughAScalar",
     .text = "G = K[m, e] :: reduce m max(or) reduce e max(or) H = G . 2 :: map x(and) "
             "Z[m] = K[m, e] . H :: map x(and) reduce e +(or)",
     .passes = 2},
    // K is reduced over m, and then V is read: each fiber once.
    {.name = "AnotherTensorsFiberIsNoSecondPass",
     .text = "G = K[m, e] :: reduce m max(or) reduce e max(or) "
             "Z[m, f] = V[m, f] . G :: map x(and)",
     .passes = 1},
    // The partials of chunks are merged with the maximum of all: a second pass, over partials.
    {.name = "PartialsMergedByTheGlobalMaximum",
     .text = "S[c, j] = Q[e] . K[c*4+j, e] :: map x(and) reduce e +(or) "
             "L[c] = S[c, j] :: reduce j max(or) G = L[c] :: reduce c max(or) "
             "E[c] = L[c] . G :: map -(left) unary exp",
     .passes = 2},
    // The same by an iteration over the chunks, which needs what came before alone.
    {.name = "PartialsMergedInOrder",
     .text = "S[c, j] = Q[e] . K[c*4+j, e] :: map x(and) reduce e +(or) "
             "L[c] = S[c, j] :: reduce j max(or) "
             "iterate c { init R[0] = -inf R[c+1] = R[c] . L[c] :: map max(or) "
             "E[c] = L[c] . R[c+1] :: map -(left) unary exp }",
     .passes = 1},
    // What an iteration carried to its end stands for the whole rank.
    {.name = "TheEndOfAnIterationIsABarrier",
     .text = "L[c] = K[c*4+j, e] :: reduce j max(or) reduce e max(or) "
             "iterate c { init R[0] = -inf R[c+1] = R[c] . L[c] :: map max(or) } "
             "E[c] = L[c] . R[end c] :: map -(left) unary exp",
     .passes = 2},
    // X is what Y was before, and Y what W was, which the barrier G raised: A is read again with
    // them, and once more after their end.
    {.name = "ABarrierReachesThroughTensorsThatAreCarriedBackwards",
     .text = "tensor A[c] arena G = A[c] :: reduce c max(or) "
             "iterate c { init X[0] = 0 init Y[0] = 0 init W[0] = 0 X[c+1] = Y[c] Y[c+1] = W[c] "
             "W[c+1] = A[c] . G :: map x(and) } "
             "Z[c] = A[c] . X[end c] :: map x(and)",
     .passes = 3},
    {.name = "ABodyThatWaitsForAPassEachTimeHasSome",
     .text = "rank i = 9 iterate i { init X[0] = 1 S[i, m] = K[m, e] . X[i] :: reduce e +(or) "
             "X[i+1] = S[i, m] :: reduce m +(or) }",
     .passes = 4},
};
SLUICE_TABLE(PassesTable, kPassesRows);

TEST(FamilyOf, ConstantsAreFamiliesOfTheirOwn) {
  const Cascade cascade = Paper("attention_one_pass");
  EXPECT_EQ(FamilyOf(cascade, "c"), (RankFamily{"m", "c"}));
  EXPECT_EQ(FamilyOf(cascade, "context"), (RankFamily{"m", "c"}));
  EXPECT_EQ(FamilyOf(ParseOrDie("rank i = 4 rank k = 4"), "i"), (RankFamily{"i"}));
}

// T reads what the iteration before left in R, which is of the second pass because X is.
TEST(LevelsOf, WhatIsCarriedHasTheLevelOfTheBody) {
  const Cascade cascade = ParseOrDie(
      "rank c = n tensor A[c] arena G = A[c] :: reduce c max(or) "
      "iterate c { init R[0] = 0 T[c] = R[c] X[c] = A[c] . G :: map x(and) "
      "R[c+1] = R[c] . X[c] :: map +(or) }");
  std::vector<int> levels;
  for (const Level& each : LevelsOf(cascade, {"c"})) levels.push_back(each.level);
  EXPECT_THAT(levels, ElementsAre(0, 0, 1, 1, 1));  // G, init R, T, X, R
}

TEST(LevelsOf, AResultIsOfItsOperandsPass) {
  const Cascade cascade = Paper("attention_deferred_division");
  std::vector<int> levels;
  for (const Level& each : LevelsOf(cascade, {"m"})) levels.push_back(each.level);
  EXPECT_THAT(levels, ElementsAre(0, 0, 1, 1, 1, 1));  // S, G, N, D, Z, Y
}

// Attention of 2 queries on 1000 keys of 64 values of 4 bytes.
struct FactsRow {
  const char* name;
  const char* paper;
  // K and V are 1000 * 64 * 4 = 256,000 bytes each, and each is read in one pass.
  std::vector<double> kv_loads;  // by pass
  double flops = 0;
  double exponentials = 0;
  double divisions = 0;
  double footprint_bytes = 0;
};

class FactsTable : public TableTest<FactsRow> {};

TEST_P(FactsTable, AreThoseDerivedByHand) {
  const auto analysis =
      Analyze(Paper(row().paper), {{"tokens", 2}, {"context", 1000}, {"head_dim", 64}});
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  EXPECT_EQ(analysis->stream, "context");
  EXPECT_EQ(analysis->passes, std::ssize(row().kv_loads));
  std::vector<double> kv_loads;
  for (const PassFacts& pass : analysis->per_pass) {
    kv_loads.push_back(pass.traffic.LoadsOf(Home::kKv));
  }
  EXPECT_EQ(kv_loads, row().kv_loads);
  EXPECT_EQ(analysis->traffic.LoadsOf(Home::kArena), 2 * 64 * 4);   // Q
  EXPECT_EQ(analysis->traffic.StoresOf(Home::kArena), 2 * 64 * 4);  // Y
  EXPECT_EQ(analysis->traffic.StoresOf(Home::kKv), 0);
  EXPECT_EQ(analysis->work.flops, row().flops);
  EXPECT_EQ(analysis->work.exponentials, row().exponentials);
  EXPECT_EQ(analysis->work.divisions, row().divisions);
  EXPECT_EQ(analysis->footprint_bytes, row().footprint_bytes);
}

const FactsRow kFactsRows[] = {
    // Flops: S and Y 2 * 2*1000*64 each, G 2*1000, N 2*1000, D 2*1000. One exponential (N) and one
    // division (A) for each of 2*1000 scores. Live in the second pass: S, whose row of 1000 * 4
    // bytes N takes over, and G and D of 4 bytes.
    {.name = "ThreePass",
     .paper = "attention_three_pass",
     .kv_loads = {256000, 0, 256000},
     .flops = 512000 + 6000,
     .exponentials = 2000,
     .divisions = 2000,
     .footprint_bytes = 4000 + 8},
    // The divisions are those of Y, 2*64. Live in the second pass: S 1000*4, G, N, D 4 each, and
    // the sum Z 64*4.
    {.name = "DeferredDivision",
     .paper = "attention_deferred_division",
     .kv_loads = {256000, 256000},
     .flops = 512000 + 6000,
     .exponentials = 2000,
     .divisions = 128,
     .footprint_bytes = 4000 + 12 + 256},
    // Two chunks of 512, so that 2*1024 scores are exponents of N, and 2*2 of E. Flops: S and Z
    // 512,000, L, N, B and W 2048 each, G 4, E 4, D 2*4. Live in the first pass: S 512*4, N of both
    // chunks 1024*4, L and B 2*4 each, G 4.
    {.name = "TwoPass",
     .paper = "attention_two_pass",
     .kv_loads = {256000, 256000},
     .flops = 512000 + 4 * 2048 + 16,
     .exponentials = 2048 + 4,
     .divisions = 128,
     .footprint_bytes = 2048 + 4096 + 20},
    // Flops: S and U 512,000, L, N and B 2048 each, R, E, T and D 2*2 each, W and Z 2*64*2 each.
    // Live: S 512*4, U and Z 64*4 each, and R, L, E, N, B, T, D and W 4 each.
    {.name = "OnePass",
     .paper = "attention_one_pass",
     .kv_loads = {512000},
     .flops = 512000 + 3 * 2048 + 16 + 512,
     .exponentials = 2048 + 4,
     .divisions = 128,
     .footprint_bytes = 2048 + 512 + 32},
};
SLUICE_TABLE(FactsTable, kFactsRows);

TEST(Analyze, OnePassNeedsAChunkHoweverLongTheContextIs) {
  const auto footprint = [](std::string_view name, int64_t context) {
    return Analyze(Paper(name), {{"tokens", 1}, {"context", context}, {"head_dim", 64}})
        ->footprint_bytes;
  };
  EXPECT_EQ(footprint("attention_one_pass", 1 << 10), footprint("attention_one_pass", 1 << 20));
  EXPECT_EQ(footprint("attention_deferred_division", 1 << 20) -
                footprint("attention_deferred_division", 1 << 10),
            4 * ((1 << 20) - (1 << 10)));
}

// Y has the 64 dimensions of the head, but not the 8 keys.
TEST(Analyze, TheStreamIsNoRankOfTheOutputUnlessItIsChosen) {
  const Sizes sizes = {{"tokens", 1}, {"context", 8}, {"head_dim", 64}};
  const Cascade cascade = Paper("attention_three_pass");
  EXPECT_EQ(Analyze(cascade, sizes)->stream, "context");
  EXPECT_EQ(Analyze(cascade, sizes, "head_dim")->passes, 1);
  EXPECT_THAT(std::string(Analyze(cascade, sizes, "words").status().message()),
              HasSubstr("no rank or symbol 'words'"));
  EXPECT_THAT(std::string(Analyze(cascade, {}).status().message()), HasSubstr("has no size"));
}

TEST(Analyze, ATensorInTheArenaIsStoredAndLoaded) {
  const Cascade cascade = ParseOrDie(
      "rank d = hidden tensor X[d] arena 2 bytes tensor Q[d] arena tensor Y[d] arena "
      "Q[d] = X[d] . X[d] :: map x(and) R = Q[d] :: reduce d +(or) Y[d] = Q[d] . R :: map /(and)");
  const auto analysis = Analyze(cascade, {{"hidden", 100}});
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  ASSERT_EQ(analysis->passes, 2);
  // X 100 * 2, and Q 100 * 4 as soon as it is there.
  EXPECT_EQ(analysis->per_pass[0].traffic.LoadsOf(Home::kArena), 600);
  EXPECT_EQ(analysis->per_pass[0].traffic.StoresOf(Home::kArena), 400);
  EXPECT_EQ(analysis->per_pass[1].traffic.LoadsOf(Home::kArena), 400);
  EXPECT_EQ(analysis->per_pass[1].traffic.StoresOf(Home::kArena), 400);
}

// Q is there until W reads it, so that P needs a place of its own. Live in the second pass: Q and P
// 100 * 4 each, R and U 4 each.
TEST(Analyze, AnOperandThatIsReadLaterKeepsItsPlace) {
  const Cascade cascade = ParseOrDie(
      "rank d = hidden tensor X[d] arena tensor W[d] arena Q[d] = X[d] . 2 "
      "R = Q[d] :: reduce d +(or) P[d] = Q[d] . R U = P[d] :: reduce d +(or) "
      "Y[d] = P[d] . U W[d] = Q[d] . Y[d]");
  EXPECT_EQ(Analyze(cascade, {{"hidden", 100}})->per_pass[1].footprint_bytes, 808);
}

// B reads A again, so that A is there for all m, and Y can be summed for one f after the other.
TEST(Analyze, AnOperandThatIsKeptAnywayNeedsNoSumsSideBySide) {
  std::string text;
  for (const PaperCascade& each : PaperCascades()) {
    if (each.passes == 3) text = each.text;
  }
  const auto live_ranks = [](const std::string& of) {
    const auto analysis =
        Analyze(ParseOrDie(of), {{"tokens", 1}, {"context", 100}, {"head_dim", 8}}, "context");
    for (const TensorFacts& facts : analysis->tensors) {
      if (facts.tensor.name == "Y") return facts.live_ranks;
    }
    return std::vector<std::string>{"none"};
  };
  EXPECT_THAT(live_ranks(text), ElementsAre("f"));
  EXPECT_THAT(live_ranks(text + "M[p] = A[p, m] :: reduce m max(or) B[p, m] = A[p, m] . M[p]"),
              IsEmpty());
}

// XSA with grouped queries: the head g within the group h shares the own value O.
TEST(Hoists, TheSquareOfAValueLacksTheHeadWithinItsGroup) {
  const Cascade cascade = ParseOrDie(
      "rank h = kv_heads rank g = group rank f = head_dim "
      "tensor Y[h, g, f] arena tensor O[h, f] kv tensor Z[h, g] arena "
      "N[h] = O[h, f] . O[h, f] :: map x(and) reduce f +(or) "
      "A[h, g] = Y[h, g, f] . O[h, f] :: map x(and) reduce f +(or) "
      "Z[h, g] = A[h, g] . N[h] :: map /(and)");
  EXPECT_THAT(Hoists(cascade), ElementsAre(Hoist{"N", "Z", {"g"}}));
  EXPECT_THAT(Hoists(ParseOrDie("rank d = 4 tensor X[d] arena N = X[d] :: reduce d +(or) "
                                "Z[d] = X[d] . N :: map /(and)")),
              IsEmpty());
}

// Counts the points of the ranks p, c and j one by one.
int64_t CountOneByOne(const Einsum& einsum, const Sizes& size_of) {
  const auto at = [&](const Index& index, const Sizes& point) {
    int64_t sum = index.offset + (index.end_of.empty() ? 0 : size_of.at(index.end_of));
    for (const Index::Term& term : index.terms) sum += point.at(term.rank) * term.factor;
    return sum;
  };
  int64_t count = 0;
  Sizes point;
  for (point["p"] = 0; point["p"] < size_of.at("p"); ++point["p"]) {
    for (point["c"] = 0; point["c"] < size_of.at("c"); ++point["c"]) {
      for (point["j"] = 0; point["j"] < size_of.at("j"); ++point["j"]) {
        const int64_t m = at(einsum.in[0].indices[1], point);
        bool holds = m >= 0 && m < size_of.at("m");
        for (const Condition& each : einsum.where) {
          const int64_t left = at(each.left, point);
          const int64_t right = at(each.right, point);
          holds &= each.comparison == Comparison::kLess        ? left < right
                   : each.comparison == Comparison::kLessEqual ? left <= right
                                                               : left == right;
        }
        count += holds;
      }
    }
  }
  return count;
}

TEST(PointCounter, AgreesWithCountingOneByOne) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
    };
    const Sizes size_of = {
        {"p", draw(1, 6)}, {"m", draw(1, 20)}, {"c", draw(1, 5)}, {"j", draw(1, 5)}};
    const auto index = [&] {
      Index drawn{.terms = {}, .offset = draw(-5, 5)};
      for (const char* rank : {"p", "c", "j"}) {
        const int64_t factor = draw(-3, 3);
        if (factor != 0) drawn.terms.push_back({rank, factor});
      }
      if (draw(0, 1) == 1) drawn.end_of = "m";
      return drawn;
    };
    Einsum einsum{
        .out = {.tensor = "Z", .indices = {{.terms = {{"p"}}}}},
        .in = {{.tensor = "S",
                .indices = {{.terms = {{"p"}}},
                            {.terms = {{"c", draw(1, 5)}, {"j"}}, .offset = draw(-2, 2)}}}},
        .reduce = {{"c", Op::kAdd}, {"j", Op::kAdd}}};
    for (int64_t n = draw(0, 3); n > 0; --n) {
      einsum.where.push_back({index(), static_cast<Comparison>(draw(0, 2)), index()});
    }
    const Cascade cascade{.name = "",
                          .ranks = {},
                          .tensors = {{.name = "S", .ranks = {"p", "m"}}},
                          .statements = {einsum}};
    PointCounter counter(cascade, size_of);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(counter.Count(einsum).value(), CountOneByOne(einsum, size_of));
    }
  }
}

TEST(PointCounter, ComparesConstantsOnce) {
  for (const char* never : {"1 <= 0", "end i < 5"}) {
    const Cascade cascade =
        ParseOrDie(absl::StrCat("rank i = 5 tensor A[i] arena Z[i] = A[i] :: where ", never,
                                " W = 2 :: where ", never, " Y[i] = A[i] :: where 0 <= 1"));
    const auto analysis = Analyze(cascade, {});
    ASSERT_TRUE(analysis.ok()) << analysis.status();
    EXPECT_EQ(analysis->einsums[0].points, 0);
    EXPECT_EQ(analysis->einsums[1].points, 0);
    EXPECT_EQ(analysis->einsums[2].points, 5);
  }
}

// 2^20 places of i and k, each compared by an einsum of its own.
std::string ManyConditions(int einsums) {
  std::string text = "rank i = 1024 rank k = 1024 rank m = 2048 tensor A[i, k, m] arena ";
  for (int n = 0; n < einsums; ++n) {
    absl::StrAppend(&text, "Z", n, " = A[i, k, m] :: reduce i +(or) reduce k +(or) reduce m +(or) ",
                    "where i+k+m <= ", n);
    for (int more = 1; more < 16; ++more) absl::StrAppend(&text, ", i <= k+m+", more);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

TEST(Analyze, TheWorkOfCountingHasALimit) {
  EXPECT_TRUE(Analyze(ParseOrDie(ManyConditions(2)), {}).ok());
  const absl::Status status = Analyze(ParseOrDie(ManyConditions(20)), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("takes more than ", kMaxCountingSteps, " steps")));
}

TEST(Analyze, ACascadeWithoutARankHasNothingToSay) {
  EXPECT_EQ(Analyze(ParseOrDie("Z = 1 . 2"), {}).status().message(),
            "the cascade has no rank, so that nothing is iterated over");
}

}  // namespace
}  // namespace sluice::einsum
