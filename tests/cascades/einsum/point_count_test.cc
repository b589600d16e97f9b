#include "cascades/einsum/point_count.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "cascades/einsum/analysis.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cascades/einsum/cascades.h"

namespace sluice::einsum {
namespace {

using ::testing::HasSubstr;

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

// 2^20 places of i and k, each compared by a separate einsum.
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

}  // namespace
}  // namespace sluice::einsum
