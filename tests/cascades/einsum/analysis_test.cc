#include "cascades/einsum/analysis.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cascades/einsum/cascades.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
    // The divisions belong to Y, 2*64. Live in the second pass: S 1000*4, G, N, D 4 each, and the
    // sum Z 64*4.
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
TEST(Analyze, TheStreamIsNotAnOutputRankByDefault) {
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
  // X 100 * 2, and Q 100 * 4 as soon as it is computed.
  EXPECT_EQ(analysis->per_pass[0].traffic.LoadsOf(Home::kArena), 600);
  EXPECT_EQ(analysis->per_pass[0].traffic.StoresOf(Home::kArena), 400);
  EXPECT_EQ(analysis->per_pass[1].traffic.LoadsOf(Home::kArena), 400);
  EXPECT_EQ(analysis->per_pass[1].traffic.StoresOf(Home::kArena), 400);
}

// Q is kept until W reads it, so P needs separate memory. Live in the second pass: Q and P 100 * 4
// each, R and U 4 each.
TEST(Analyze, AnOperandThatIsReadLaterKeepsItsPlace) {
  const Cascade cascade = ParseOrDie(
      "rank d = hidden tensor X[d] arena tensor W[d] arena Q[d] = X[d] . 2 "
      "R = Q[d] :: reduce d +(or) P[d] = Q[d] . R U = P[d] :: reduce d +(or) "
      "Y[d] = P[d] . U W[d] = Q[d] . Y[d]");
  EXPECT_EQ(Analyze(cascade, {{"hidden", 100}})->per_pass[1].footprint_bytes, 808);
}

// B reads A again, so A is kept for all m, and Y can be summed for one f after another.
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

TEST(Analyze, ACascadeWithoutARankIsRefused) {
  EXPECT_EQ(Analyze(ParseOrDie("Z = 1 . 2"), {}).status().message(),
            "the cascade has no rank, so nothing is iterated over; declare a rank");
}

}  // namespace
}  // namespace sluice::einsum
