#include "cascades/einsum/interpreter.h"

#include <cmath>
#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Index At(const char* rank, int64_t offset = 0) { return {.terms = {{rank}}, .offset = offset}; }

// A has 3 values and B has 2, so only A has a value at point 2. Neither has one at point -1.
struct MergeRow {
  const char* name;
  Op op;
  Merge merge;
  bool swapped = false;  // B is the left operand
  double at_2 = 0;
  double sum = 0;  // over the points
};

class MergeTable : public TableTest<MergeRow> {
 protected:
  static Cascade CascadeOfRow(std::vector<Reduction> reduce) {
    Einsum einsum{
        .out = {.tensor = "Z"},
        .in = {{.tensor = "A", .indices = {At("i")}}, {.tensor = "B", .indices = {At("i")}}},
        .map = row().op,
        .map_merge = row().merge,
        .reduce = std::move(reduce)};
    if (row().swapped) std::swap(einsum.in[0], einsum.in[1]);
    if (einsum.reduce.empty()) einsum.out.indices = {At("i")};
    return {.name = "merge",
            .ranks = {{"i", {"", 3}}, {"j", {"", 2}}},
            .tensors = {{"A", {"i"}}, {"B", {"j"}}},
            .statements = {einsum}};
  }

  const NamedValues inputs_ = {{"A", {{3}, {5, 7, 11}}}, {"B", {{2}, {2, 3}}}};
};

TEST_P(MergeTable, FollowsTheMergeWhereAValueIsMissing) {
  const auto points = Interpret(CascadeOfRow({}), {}, inputs_);
  ASSERT_TRUE(points.ok()) << points.status();
  EXPECT_EQ(points->at("Z").shape, std::vector<int64_t>{3});
  EXPECT_EQ(points->at("Z").values[2], row().at_2);
  const auto sum = Interpret(CascadeOfRow({{"i", Op::kAdd}}), {}, inputs_);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_THAT(sum->at("Z").values, ElementsAre(row().sum));
}

const MergeRow kMergeRows[] = {
    {.name = "AndSkips", .op = Op::kMultiply, .merge = Merge::kAnd, .at_2 = 0, .sum = 31},
    {.name = "OrTakesTheOther", .op = Op::kMultiply, .merge = Merge::kOr, .at_2 = 11, .sum = 42},
    {.name = "OrTakesTheRight",
     .op = Op::kMax,
     .merge = Merge::kOr,
     .swapped = true,
     .at_2 = 11,
     .sum = 23},
    {.name = "LeftStandsAlone", .op = Op::kSubtract, .merge = Merge::kLeft, .at_2 = 11, .sum = 18},
    {.name = "RightDoesNot",
     .op = Op::kSubtract,
     .merge = Merge::kLeft,
     .swapped = true,
     .at_2 = 0,
     .sum = -7},
    {.name = "AllReadsZero", .op = Op::kMin, .merge = Merge::kAll, .at_2 = 0, .sum = 5},
    {.name = "AllSubtractsFromZero",
     .op = Op::kSubtract,
     .merge = Merge::kAll,
     .swapped = true,
     .at_2 = -11,
     .sum = -18},
};
SLUICE_TABLE(MergeTable, kMergeRows);

// Z = reduce over i of A where i < 0.
Cascade OverNothing(Op op, Merge merge) {
  return {.name = "nothing",
          .ranks = {{"i", {"n"}}},
          .tensors = {{"A", {"i"}}},
          .statements = {Einsum{.out = {.tensor = "Z"},
                                .in = {{.tensor = "A", .indices = {At("i")}}},
                                .reduce = {{"i", op, merge}},
                                .where = {{At("i"), Comparison::kLess, {}}}}}};
}

TEST(Interpreter, AReductionOverNothingIsItsIdentity) {
  const auto reduced = [](Op op, Merge merge) {
    const auto results = Interpret(OverNothing(op, merge), {{"n", 2}}, {{"A", {{2}, {4, 5}}}});
    return results.ok() ? results->at("Z").values[0] : std::nan("");
  };
  EXPECT_EQ(reduced(Op::kAdd, Merge::kOr), 0);
  EXPECT_EQ(reduced(Op::kMultiply, Merge::kOr), 1);
  EXPECT_EQ(reduced(Op::kMax, Merge::kOr), -kInfinity);
  EXPECT_EQ(reduced(Op::kMin, Merge::kOr), kInfinity);
  EXPECT_EQ(reduced(Op::kMax, Merge::kAll), 0);
}

// Sums exp(A) by chunks of 2. The last chunk holds a point beyond A. S has no value there, so D
// does not count exp(0).
TEST(Interpreter, APointOutsideStaysWithoutAValue) {
  const Index m = {.terms = {{"c", 2}, {"j"}}};
  const Cascade cascade{
      .name = "chunks",
      .ranks = {{"m", {"n"}}, {"c", {"n", 2}}, {"j", {"", 2}}},
      .tensors = {{"A", {"m"}}},
      .statements = {Einsum{.out = {.tensor = "S", .indices = {At("c"), At("j")}},
                            .in = {{.tensor = "A", .indices = {m}}}},
                     Einsum{.out = {.tensor = "D", .indices = {At("c")}},
                            .in = {{.tensor = "S", .indices = {At("c"), At("j")}}},
                            .unary = Function::kExp,
                            .reduce = {{"j", Op::kAdd}}}}};
  const auto results = Interpret(cascade, {{"n", 3}}, {{"A", {{3}, {0, 1, 2}}}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(results->at("S").values, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(results->at("D").values,
              ElementsAre(DoubleEq(1 + std::exp(1)), DoubleEq(std::exp(2))));
}

// R counts up from 10 by A, and Z reads its end.
Cascade RunningSum() {
  return {
      .name = "running",
      .ranks = {{"c", {"n"}}},
      .tensors = {{"A", {"c"}}},
      .statements = {Iteration{.rank = "c",
                               .init = {{.out = {.tensor = "R", .indices = {{}}},
                                         .in = {{.tensor = {}, .constant = 10}}}},
                               .body = {{.out = {.tensor = "R", .indices = {At("c", 1)}},
                                         .in = {{.tensor = "R", .indices = {At("c")}},
                                                {.tensor = "A", .indices = {At("c")}}},
                                         .map = Op::kAdd}}},
                     Einsum{.out = {.tensor = "Z"},
                            .in = {{.tensor = "R", .indices = {{.terms = {}, .end_of = "c"}}}}}}};
}

TEST(Interpreter, AnIterationCarriesATensorOnePlaceFurther) {
  const auto results = Interpret(RunningSum(), {{"n", 3}}, {{"A", {{3}, {1, 2, 3}}}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->at("R").shape, std::vector<int64_t>{4});
  EXPECT_THAT(results->at("R").values, ElementsAre(10, 11, 13, 16));
  EXPECT_THAT(results->at("Z").values, ElementsAre(16));
}

TEST(Interpreter, RefusesInvalidInputs) {
  const Cascade cascade = RunningSum();
  const auto refused = [&](const Sizes& sizes, const NamedValues& inputs) {
    return std::string(Interpret(cascade, sizes, inputs).status().message());
  };
  EXPECT_THAT(refused({}, {}), HasSubstr("rank 'c': 'n' has no size"));
  EXPECT_THAT(refused({{"n", 0}}, {}), HasSubstr("rank 'c': 0 is not a size"));
  EXPECT_THAT(refused({{"n", 2}}, {}), HasSubstr("input 'A' is missing"));
  EXPECT_THAT(refused({{"n", 2}}, {{"A", {{3}, {1, 2, 3}}}}),
              HasSubstr("input 'A' has the shape [3] and 3 values, not [2]"));
  EXPECT_THAT(refused({{"n", 2}}, {{"A", {{2}, {1}}}}), HasSubstr("and 1 values"));
  const auto large = Interpret(cascade, {{"n", kMaxPoints + 1}}, {});
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("einsum 'R'"));
}

}  // namespace
}  // namespace sluice::einsum
