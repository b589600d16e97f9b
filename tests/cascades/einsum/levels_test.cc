#include "cascades/einsum/levels.h"

#include "absl/strings/str_cat.h"
#include "cascades/einsum/analysis.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cascades/einsum/cascades.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::ElementsAre;

// The last statement of the text is an einsum.
struct RolesRow {
  const char* name;
  const char* ranks;  // each has 2 places
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

// Declarations for the texts of the rows.
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
    // L, N and B need only their own chunk. G is reduced over all chunks, and E and W iterate over
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
    // The same by an iteration over the chunks, which needs only earlier chunks.
    {.name = "PartialsMergedInOrder",
     .text = "S[c, j] = Q[e] . K[c*4+j, e] :: map x(and) reduce e +(or) "
             "L[c] = S[c, j] :: reduce j max(or) "
             "iterate c { init R[0] = -inf R[c+1] = R[c] . L[c] :: map max(or) "
             "E[c] = L[c] . R[c+1] :: map -(left) unary exp }",
     .passes = 1},
    // A tensor that an iteration carried to its end stands for the whole rank.
    {.name = "TheEndOfAnIterationIsABarrier",
     .text = "L[c] = K[c*4+j, e] :: reduce j max(or) reduce e max(or) "
             "iterate c { init R[0] = -inf R[c+1] = R[c] . L[c] :: map max(or) } "
             "E[c] = L[c] . R[end c] :: map -(left) unary exp",
     .passes = 2},
    // X is the previous Y, and Y the previous W, which the barrier G raised: A is read again with
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

// T reads the value that the previous iteration wrote to R. R belongs to the second pass because X
// does.
TEST(LevelsOf, CarriedTensorsHaveTheLevelOfTheBody) {
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

}  // namespace
}  // namespace sluice::einsum
