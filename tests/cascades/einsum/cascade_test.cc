#include "cascades/einsum/cascade.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cascades/einsum/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct CheckRow {
  const char* name;
  const char* text;
  const char* error = "";  // or no error
};

class CheckTable : public TableTest<CheckRow> {};

TEST_P(CheckTable, NamesTheFault) {
  const auto cascade = Parse(absl::StrCat(
      "rank i = n rank k = 4 rank c = n / 2 tensor A[i] arena tensor B[i, k] arena ", row().text));
  EXPECT_EQ(std::string(cascade.status().message()), row().error);
}

const CheckRow kCheckRows[] = {
    {"ASum", "Z[i] = B[i, k] :: reduce k +(or)"},
    {"AWordOfTheNotation", "rank map = 3",
     "rank 'map': not a name (a letter, then letters, digits and '_')"},
    {"ANameThatEndsWithALine", "rank end_ = 3 tensor T_[end_] arena Z_[end_] = T_[end_]"},
    {"ARankTwice", "rank i = 3", "rank 'i' is declared twice"},
    {"ASizeOfNothing", "rank z = 0", "rank 'z': 0 is not a size"},
    {"ADivisorOfNothing", "rank z = n / 0", "rank 'z': 0 is not a divisor"},
    {"ATensorTwice", "tensor A[k] arena", "tensor 'A' is declared twice"},
    {"ATensorOfAnUnknownRank", "tensor C[z] arena", "tensor 'C': rank 'z' is not declared"},
    {"ValuesTooWide", "tensor C arena 17 bytes",
     "tensor 'C': a value has 0.125 to 16 bytes, not 17"},
    {"AnUnknownTensor", "Z = C",
     "statement 1 (Z): it reads 'C', which is neither declared nor an earlier result"},
    {"ALaterResult", "tensor Y arena Z = Y Y = 1",
     "statement 1 (Z): it reads 'Y' before it is written"},
    {"ItsOwnResult", "tensor Z arena Z = Z", "statement 1 (Z): it reads 'Z' before it is written"},
    {"TooFewIndices", "Z[i] = B[i]", "statement 1 (Z): 'B' has 2 ranks, not 1"},
    {"AResultWithTooManyIndices", "tensor Z arena Z[i] = 1",
     "statement 1 (Z): 'Z' has 0 ranks, not 1"},
    {"AResultWithOtherRanks", "tensor Z[k] arena Z[i] = 1",
     "statement 1 (Z): the result has rank 'i' where its declaration has 'k'"},
    {"ASecondResult", "Z = 1 Z = 2", "statement 2 (Z): 'Z' is written a second time"},
    {"AnInputAsAResult", "tensor Z arena Y = 1 Z = 1 Z = 2",
     "statement 3 (Z): 'Z' is written a second time"},
    {"ADiagonalResult", "Z[i, i] = A[i]", "statement 1 (Z): the result has rank 'i' twice"},
    {"AShiftedResult", "Z[i+1] = A[i]",
     "statement 1 (Z): an index of the result is not a single rank"},
    {"AnUnknownRank", "Z = A[z]", "statement 1 (Z): rank 'z' is not declared"},
    {"AFreeRank", "Z = A[i]", "statement 1 (Z): rank 'i' is neither in the result nor reduced"},
    {"AFreeRankInACondition", "Z = 1 :: where i < 3",
     "statement 1 (Z): rank 'i' is neither in the result nor reduced"},
    {"TheSizeOfAnUnknownRank", "Z = 1 :: where 1 < end z",
     "statement 1 (Z): rank 'z' is not declared"},
    {"ARankTwiceInAnIndex", "Z[i] = A[i+i]", "statement 1 (Z): an index has rank 'i' twice"},
    {"AFactorOfNothing", "Z[i] = A[i*0]", "statement 1 (Z): rank 'i' has a factor of 0"},
    {"AnOffsetTooLarge", "Z = A[2147483648+1]",
     "statement 1 (Z): an index has an offset of 2147483649"},
    {"AReducedRankInTheResult", "Z[i] = A[i] :: reduce i +(or)",
     "statement 1 (Z): it reduces rank 'i', which its result has or which is already reduced"},
    {"ARankReducedTwice", "Z = A[i] :: reduce i +(or) reduce i +(or)",
     "statement 1 (Z): it reduces rank 'i', which its result has or which is already reduced"},
    {"AnUnknownReducedRank", "Z = 1 :: reduce z +(or)",
     "statement 1 (Z): it reduces rank 'z', which is not declared"},
    {"ADifferenceAsAReduction", "Z = A[i] :: reduce i -(or)",
     "statement 1 (Z): it reduces by -, whose result depends on the order"},
    {"AReductionOfAnd", "Z = A[i] :: reduce i +(and)",
     "statement 1 (Z): the merge of a reduction must be 'or' or 'all', not 'and'"},
    {"DifferentReductions", "Z = B[i, k] :: reduce i +(or) reduce k max(or)",
     "statement 1 (Z): its reductions differ in their operation"},
    {"ADifferenceOfEither", "Z[i] = A[i] . A[i] :: map -(or)",
     "statement 1 (Z): map -(or) has no meaning where an operand has no value"},
    {"AQuotientOfAll", "Z[i] = A[i] . A[i] :: map /(all)",
     "statement 1 (Z): map /(all) has no meaning where an operand has no value"},
    {"ADifferenceOfAll", "Z[i] = A[i] . A[i] :: map -(all)"},
    {"ADiagonalOperand", "tensor C[i, i] arena Z[i] = C[i, i]"},

    {"ARunningSum", "iterate i { init R[0] = 0 R[i+1] = R[i] . A[i] :: map +(or) } Z = R[end i]"},
    {"AnIterationOverAnUnknownRank", "iterate z { Z[i] = 1 }",
     "statement 1: it iterates over rank 'z', which is not declared"},
    {"AnEmptyBody", "iterate i { init R[0] = 0 }", "statement 1: the iteration's body is empty"},
    {"InitElsewhere", "iterate i { init R[1] = 0 R[i+1] = R[i] }",
     "statement 1, init (R): an index of the result is neither a single rank nor the only 0"},
    {"InitAtTheRank", "iterate i { init R[k] = 0 R[i+1] = R[i] }",
     "statement 1, init (R): `init` does not write at 0 of 'i'"},
    {"InitAtTwoZeros", "iterate i { init R[0, 0] = 0 R[i+1, k] = 1 }",
     "statement 1, init (R): an index of the result is neither a single rank nor the only 0"},
    {"InitAlone", "iterate i { init R[0] = 0 Z[i] = 1 }",
     "statement 1: the body does not write 'R', which `init` writes"},
    {"ACarriedTensorAtItsOwnPlace", "iterate i { init R[0] = 0 R[i] = 1 }",
     "statement 1, body (R): the result is not written at i+1, where `init` begins it"},
    {"ACarriedTensorAtAnotherPosition", "iterate i { init R[k, 0] = 0 R[i+1, k] = 1 }",
     "statement 1, body (R): the result is not written at i+1, where `init` begins it"},
    {"ALocalTensorAtTheNextPlace", "iterate i { Z[i+1] = 1 }",
     "statement 1, body (Z): an index of the result is not a single rank"},
    {"AResultWithoutTheRank", "iterate i { Z[k] = 1 }",
     "statement 1, body (Z): the result is not written at i"},
    {"TheNextPlaceBeforeItIsWritten", "iterate i { init R[0] = 0 Z[i] = R[i+1] R[i+1] = R[i] }",
     "statement 1, body (Z): it reads 'R' at an index of i that is not written yet"},
    {"TheNextPlaceAfterItIsWritten", "iterate i { init R[0] = 0 R[i+1] = R[i] Z[i] = R[i+1] }"},
    {"AnotherPlace", "iterate i { init R[0] = 0 R[i+1] = R[0] }",
     "statement 1, body (R): it reads 'R' at an index of i that is not written yet"},
    {"AReductionOverTheIteration", "iterate i { Z[i] = 1 :: reduce i +(or) }",
     "statement 1, body (Z): it reduces rank 'i', which its result has or which is already "
     "reduced"},
    {"InitReadsInit", "iterate i { init R[0] = 0 init Q[0] = R[0] R[i+1] = 1 Q[i+1] = 1 }",
     "statement 1, init (Q): it reads 'R' before it is written"},
    {"TwiceInABody", "iterate i { Z[i] = 1 Z[i] = 2 }",
     "statement 1, body (Z): 'Z' is written a second time"},
    {"AnotherIterationWritesIt",
     "iterate i { init R[0] = 0 R[i+1] = R[i] } iterate c { init R[0] = 0 R[c+1] = R[c] }",
     "statement 2, init (R): 'R' is written a second time"},
    {"AnotherBodyWritesIt", "iterate i { init R[0] = 0 R[i+1] = R[i] } iterate i { R[i] = 1 }",
     "statement 2, body (R): 'R' is written a second time"},
};
SLUICE_TABLE(CheckTable, kCheckRows);

// Cascades that text cannot express.
TEST(Check, RefusesCascadesThatTextCannotExpress) {
  const auto message = [](const Einsum& einsum) {
    return std::string(
        Check({.name = "", .ranks = {{"i", {"", 2}}}, .tensors = {}, .statements = {einsum}})
            .message());
  };
  const Access one{.tensor = {}, .constant = 1};
  EXPECT_EQ(message({.out = {.tensor = "Z"}, .in = {one}}), "");
  EXPECT_THAT(message({.out = one, .in = {one}}), HasSubstr("the result has no name"));
  EXPECT_THAT(message({.out = {.tensor = "Z"}, .in = {}}), HasSubstr("it has 0 operands"));
  EXPECT_THAT(message({.out = {.tensor = "Z"}, .in = {one, one, one}}),
              HasSubstr("it has 3 operands"));
  EXPECT_THAT(message({.out = {.tensor = "Z\n"}, .in = {one}}), HasSubstr("'Z\\n': not a name"));
  EXPECT_THAT(message({.out = {.tensor = "Z"}, .in = {{.tensor = {}, .indices = {{}}}}}),
              HasSubstr("a constant has an index"));
  EXPECT_THAT(
      message({.out = {.tensor = "Z"},
               .in = {{.tensor = {}, .constant = std::numeric_limits<double>::quiet_NaN()}}}),
      HasSubstr("a constant is not a number"));
}

TEST(Check, RefusesAFactorThatCouldOverflow) {
  Cascade cascade{.name = "", .ranks = {{"i", {"n"}}}, .tensors = {{"A", {"i"}}}, .statements = {}};
  Einsum einsum{.out = {.tensor = "Z", .indices = {{.terms = {{"i"}}}}},
                .in = {{.tensor = "A", .indices = {{.terms = {{"i", -kMaxNumber}}}}}}};
  cascade.statements = {einsum};
  EXPECT_TRUE(Check(cascade).ok());
  --einsum.in[0].indices[0].terms[0].factor;
  cascade.statements = {einsum};
  EXPECT_THAT(std::string(Check(cascade).message()), HasSubstr("has a factor of -2147483649"));
}

TEST(Check, Limits) {
  const auto refused = [](const Cascade& cascade) { return std::string(Check(cascade).message()); };
  Cascade ranks;
  for (int64_t i = 0; i <= kMaxRanks; ++i) ranks.ranks.push_back({absl::StrCat("r", i), {"n"}});
  EXPECT_EQ(refused(ranks), "the cascade has more than 64 ranks");
  ranks.ranks.pop_back();
  EXPECT_EQ(refused(ranks), "");

  Cascade statements;
  for (int64_t i = 0; i <= kMaxStatements; ++i) {
    statements.statements.push_back(
        Einsum{.out = {.tensor = absl::StrCat("Z", i)}, .in = {{.tensor = {}, .constant = 1}}});
  }
  EXPECT_EQ(refused(statements), "the cascade has more than 256 statements");
  statements.statements.pop_back();
  EXPECT_EQ(refused(statements), "");
  statements.tensors.push_back({"A", {}});
  EXPECT_EQ(refused(statements), "the cascade has more than 256 tensors");

  Cascade terms = ranks;
  Index index;
  for (int64_t i = 0; i <= kMaxTermsOfIndex; ++i) index.terms.push_back({absl::StrCat("r", i)});
  terms.statements.push_back(Einsum{.out = {.tensor = "Z"},
                                    .in = {{.tensor = {}, .constant = 1}},
                                    .where = {{index, Comparison::kLess, {}}}});
  EXPECT_THAT(refused(terms), HasSubstr("an index has more than 8 terms"));
}

// Returns `format` repeated, with the number of each copy instead of '#'.
std::string Repeated(int64_t count, const char* separator, const char* format) {
  std::vector<std::string> parts;
  for (int64_t i = 0; i < count; ++i) {
    parts.push_back(absl::StrReplaceAll(format, {{"#", absl::StrCat(i)}}));
  }
  return absl::StrJoin(parts, separator);
}

struct LimitRow {
  const char* name;
  int64_t limit;
  std::string (*text)(int64_t count);
  const char* error;  // with one more
};

class LimitTable : public TableTest<LimitRow> {};

TEST_P(LimitTable, TheLimitIsAccepted) {
  const auto most = Parse(row().text(row().limit));
  EXPECT_TRUE(most.ok()) << most.status();
  EXPECT_THAT(std::string(Parse(row().text(row().limit + 1)).status().message()),
              HasSubstr(row().error));
}

const LimitRow kLimitRows[] = {
    {"RanksOfATensor", kMaxRanksOfTensor,
     [](int64_t count) {
       return absl::StrCat(Repeated(count, " ", "rank r# = 2"), " tensor A[",
                           Repeated(count, ",", "r#"), "] arena");
     },
     "has more than 16 ranks"},
    {"RanksOfAResult", kMaxRanksOfTensor,
     [](int64_t count) {
       return absl::StrCat(Repeated(count, " ", "rank r# = 2"), " Z[", Repeated(count, ",", "r#"),
                           "] = 1");
     },
     "the result has more than 16 ranks"},
    {"Conditions", kMaxConditions,
     [](int64_t count) {
       return absl::StrCat("rank r = 2 Z[r] = 1 :: where ", Repeated(count, ", ", "r < 1"));
     },
     "more than 16 conditions"},
    {"LettersOfAName", kMaxNameLength,
     [](int64_t count) { return absl::StrCat("rank ", std::string(count, 'r'), " = 2"); },
     "not a name"},
    {"StatementsOfAnIteration", kMaxStatements,
     [](int64_t count) {
       return absl::StrCat("rank r = 2 iterate r { ", Repeated(count, " ", "Z#[r] = 1"), " }");
     },
     "more than 256 statements"},
    {"AFactor", kMaxNumber,
     [](int64_t count) {
       return absl::StrCat("rank r = 2 tensor A[r] arena Z[r] = A[r*", count, "]");
     },
     "an integer up to 2^31"},
    {"EighthsOfAByteOfAValue", 128,
     [](int64_t count) {
       return absl::StrCat("tensor A arena ", static_cast<double>(count) / 8, " bytes");
     },
     "a value has 0.125 to 16 bytes"},
};
SLUICE_TABLE(LimitTable, kLimitRows);

TEST(Check, AValueHasAtLeastOneBit) {
  EXPECT_TRUE(Parse("tensor A arena 0.125 bytes").ok());
  EXPECT_THAT(std::string(Parse("tensor A arena 0.12 bytes").status().message()),
              HasSubstr("0.125 to 16 bytes, not 0.12"));
}

TEST(AllTensors, AResultThatIsNotListedLivesInATile) {
  const auto cascade = Parse(
      "rank i = 2 rank k = 3 tensor A[i] kv tensor Z[i] arena Y[k, i] = A[i] "
      "iterate i { init R[k, 0] = 0 R[k, i+1] = R[k, i] . Y[k, i] :: map +(or) } Z[i] = R[0, i]");
  ASSERT_TRUE(cascade.ok()) << cascade.status();
  EXPECT_THAT(
      AllTensors(*cascade),
      ElementsAre(Tensor{"A", {"i"}, Home::kKv}, Tensor{"Z", {"i"}, Home::kArena},
                  Tensor{"Y", {"k", "i"}, Home::kTile}, Tensor{"R", {"k", "i"}, Home::kTile}));
}

}  // namespace
}  // namespace sluice::einsum
