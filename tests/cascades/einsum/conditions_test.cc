#include "cascades/einsum/conditions.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cascades/einsum/cascades.h"
#include "tests/cascades/einsum/random_cascade.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDeclared =
    "rank i = n rank k = n rank p = n rank m = n "
    "tensor A[i, k] arena tensor B[i, k] arena ";

struct CarryRow {
  const char* name;
  const char* text;   // the last einsum reads results of the earlier ones
  const char* where;  // the conditions of the last einsum; empty for none
};

class CarryTable : public TableTest<CarryRow> {};

TEST_P(CarryTable, GivesTheLastEinsumTheConditionsOfItsOperands) {
  const Cascade cascade = ParseOrDie(absl::StrCat(kDeclared, row().text));
  const auto carried = CarryConditions(cascade);
  ASSERT_TRUE(carried.ok()) << carried.status();
  EXPECT_EQ(Check(*carried), absl::OkStatus());
  const std::string last = Print(*AllEinsums(*carried).back().einsum);
  const size_t at = last.find(" where ");
  EXPECT_EQ(at == last.npos ? "" : last.substr(at + 7), row().where) << last;
  EXPECT_EQ(*CarryConditions(*carried), *carried) << "a second time changes nothing";
}

const CarryRow kCarryRows[] = {
    {"OfTheOnlyOperand", "S[i, k] = A[i, k] :: where k <= i Z[i, k] = S[i, k] :: unary exp",
     "k <= i"},
    {"WithTheReadersRanks", "S[i, k] = A[i, k] :: where k <= i Z[p, m] = S[p, m] :: unary exp",
     "m <= p"},
    {"WithComposedIndices",
     "S[i, k] = A[i, k] :: where k*2+1 <= i Z[p, m] = S[p+3, m*4-p] :: unary exp",
     "m*8-p*2+1 <= p+3"},
    {"WithAConstantIndex", "S[i, k] = A[i, k] :: where k <= i Z[p] = S[p, 2] :: unary exp",
     "2 <= p"},
    {"WithTheEndOfARank", "S[i, k] = A[i, k] :: where k <= i Z[p] = S[p, end m-1] :: unary exp",
     "end m-1 <= p"},
    {"NotAMultipleOfAnEnd", "S[i, k] = A[i, k] :: where k*2 <= i Z[p] = S[p, end m-1] :: unary exp",
     ""},
    {"OverSeveralSteps",
     "S[i, k] = A[i, k] :: where k <= i T[i, k] = S[i, k] :: unary exp Z[i, k] = T[i, k]",
     "k <= i"},
    {"AProductTakesBoth",
     "S[i, k] = A[i, k] :: where k <= i T[i, k] = B[i, k] :: where i < 3 "
     "Z[i, k] = S[i, k] . T[i, k]",
     "k <= i, i < 3"},
    {"AnOrTakesTheCommonOnes",
     "S[i, k] = A[i, k] :: where k <= i, k < 2 T[i, k] = B[i, k] :: where k < 2 "
     "Z[i, k] = S[i, k] . T[i, k] :: map +(or)",
     "k < 2"},
    {"ALeftTakesTheLeftOnes",
     "S[i, k] = A[i, k] :: where k <= i T[i, k] = B[i, k] :: where k < 2 "
     "Z[i, k] = S[i, k] . T[i, k] :: map -(left)",
     "k <= i"},
    {"AnAllTakesNone",
     "S[i, k] = A[i, k] :: where k <= i Z[i, k] = S[i, k] . S[i, k] :: map +(all)", ""},
    {"AConstantHasAllPoints", "S[i, k] = A[i, k] :: where k <= i Z[i, k] = S[i, k] . 2", "k <= i"},
    {"AReducedRankEndsThem",
     "S[i] = A[i, k] :: reduce k +(or) where k <= i, i < 3 Z[i] = S[i] :: unary exp", "i < 3"},
    {"AReductionByAllEndsThem",
     "S[i] = A[i, k] :: reduce k +(all) where i < 3 Z[i] = S[i] :: unary exp", ""},
    {"AReductionTakesThem", "S[i, k] = A[i, k] :: where k <= i Z[i] = S[i, k] :: reduce k max(or)",
     "k <= i"},
    {"InABody", "iterate p { S[i, p] = A[i, p] :: where p <= i Z[i, p] = S[i, p] :: unary exp }",
     "p <= i"},
    {"NotOfACarriedTensor",
     "iterate p { init R[i, 0] = 0 :: where i < 2 R[i, p+1] = R[i, p] } Z[i] = R[i, end p]", ""},
};
SLUICE_TABLE(CarryTable, kCarryRows);

TEST(CarryConditions, ChangesNoResultOfARandomCascade) {
  const uint64_t first = std::random_device{}();
  int changed = 0;
  for (uint64_t seed = first; seed < first + 1500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomCascade random(seed);
    const Cascade cascade = random.Make();
    const auto carried = CarryConditions(cascade);
    ASSERT_TRUE(carried.ok()) << carried.status();
    ASSERT_EQ(Check(*carried), absl::OkStatus()) << Print(*carried);
    const Sizes sizes = random.MakeSizes(4);
    const NamedValues inputs = random.MakeInputs(sizes);
    const auto expected = Interpret(cascade, sizes, inputs);
    const auto actual = Interpret(*carried, sizes, inputs);
    ASSERT_TRUE(expected.ok() && actual.ok());
    for (const auto& [name, values] : *expected) {
      const std::vector<double>& other = actual->at(name).values;
      for (size_t i = 0; i < values.values.size(); ++i) {
        const bool both_nan = std::isnan(values.values[i]) && std::isnan(other[i]);
        ASSERT_TRUE(both_nan || values.values[i] == other[i]) << name << "\n" << Print(*carried);
      }
    }
    changed += *carried != cascade;
  }
  EXPECT_GT(changed, 100);
}

TEST(CarryConditions, RefusesTooManyConditions) {
  std::string text = absl::StrCat(kDeclared, "S[i, k] = A[i, k] :: where i < 100");
  for (int i = 1; i < 10; ++i) absl::StrAppend(&text, ", i < ", 100 + i);
  absl::StrAppend(&text, " T[i, k] = A[i, k] :: where k < 100");
  for (int i = 1; i < 10; ++i) absl::StrAppend(&text, ", k < ", 100 + i);
  absl::StrAppend(&text, " Z[i, k] = S[i, k] . T[i, k]");
  const absl::Status status = CarryConditions(ParseOrDie(text)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("einsum 'Z': with the conditions of its operands it has 20 conditions"));
  EXPECT_EQ(Analyze(ParseOrDie(text), {{"n", 3}}).status(), status);
}

// Causal attention with the condition on the scores only.
TEST(CarryConditions, ReducesTheCountsOfAllLaterEinsums) {
  const auto points = [](const char* where) {
    const Cascade cascade = ParseOrDie(absl::StrCat(
        "rank p = n rank m = n rank e = 3 tensor Q[p, e] arena tensor K[m, e] kv "
        "tensor V[m, e] kv tensor Y[p, e] arena "
        "S[p, m] = Q[p, e] . K[m, e] :: map x(and) reduce e +(or)",
        where,
        " G[p] = S[p, m] :: reduce m max(or) N[p, m] = S[p, m] . G[p] :: map -(left) unary exp "
        "D[p] = N[p, m] :: reduce m +(or) A[p, m] = N[p, m] . D[p] :: map /(and) "
        "Y[p, e] = A[p, m] . V[m, e] :: map x(and) reduce m +(or)"));
    std::vector<double> counts;
    const Analysis analysis = Analyze(cascade, {{"n", 5}}).value();
    for (const EinsumFacts& each : analysis.einsums) {
      counts.push_back(each.points);
    }
    return counts;
  };
  EXPECT_EQ(points(""), (std::vector<double>{75, 25, 25, 25, 25, 75}));
  EXPECT_EQ(points(" where m <= p"), (std::vector<double>{45, 15, 15, 15, 15, 45}));
}

}  // namespace
}  // namespace sluice::einsum
