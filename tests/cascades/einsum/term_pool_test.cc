#include "cascades/einsum/term_pool.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::einsum {
namespace {

using RankNames = std::vector<std::string>;

struct Declared {
  TermPool pool;
  TermId a;

  Declared() {
    for (const char* name : {"p", "m"}) pool.DeclareRank({name, {"context"}});
    a = pool.Input({.name = "A", .ranks = {"m", "p"}});
  }
};

TEST(TermPool, OnlyEqualTermsShareAnId) {
  Declared declared;
  TermPool& pool = declared.pool;
  const TermId a = declared.a;
  EXPECT_EQ(pool.Unary(Function::kExp, a), pool.Unary(Function::kExp, a));
  EXPECT_NE(pool.Unary(Function::kExp, a), pool.Unary(Function::kLog, a));
  EXPECT_NE(pool.Reduce(Op::kAdd, "m", a), pool.Reduce(Op::kMax, "m", a));
  EXPECT_NE(pool.Reduce(Op::kAdd, "m", a), pool.Reduce(Op::kAdd, "p", a));
  EXPECT_NE(pool.Fold("m", a, a), pool.Merge("m", a, a));
  EXPECT_NE(pool.Constant(0.1), pool.Constant(0.1 + 1e-17 + 1e-16));
}

TEST(TermPool, IndicesDistinguishInputs) {
  Declared declared;
  const Tensor tensor{.name = "A", .ranks = {"m", "p"}};
  const auto at = [&](const Index& index) {
    return declared.pool.Input(tensor, {index, {.terms = {{"p"}}}});
  };
  EXPECT_EQ(at({.terms = {{"m"}}}), declared.a);
  EXPECT_NE(at({.terms = {{"m"}}, .offset = 1}), declared.a);
  EXPECT_NE(at({.terms = {{"m", 2}}}), declared.a);
  EXPECT_NE(at({.terms = {{"m"}}, .end_of = "p"}), declared.a);
}

TEST(TermPool, FreeRanksComeFromArgumentsAndConditionsWithoutTheReducedRank) {
  Declared declared;
  TermPool& pool = declared.pool;
  const TermId a = declared.a;
  EXPECT_EQ(pool.RanksOf(a), (RankNames{"p", "m"}));  // in the order of their declaration
  const TermId sum = pool.Reduce(Op::kAdd, "p", a);
  EXPECT_EQ(pool.RanksOf(sum), RankNames{"m"});
  EXPECT_EQ(pool.RanksOf(pool.Map(Op::kAdd, sum, a)), (RankNames{"p", "m"}));
  const Condition causal{{.terms = {{"m"}}}, Comparison::kLess, {.terms = {{"p"}}}};
  EXPECT_EQ(pool.RanksOf(pool.Reduce(Op::kAdd, "m", sum, {causal})), RankNames{"p"});
  EXPECT_EQ(pool.RanksOf(Split(pool, {"m", "c", "j", 4}, a)), (RankNames{"p", "c", "j"}));
  EXPECT_EQ(pool.RanksOf(pool.Constant(1)), RankNames{});
}

TEST(TermPool, ChunksRoundUp) {
  Declared declared;
  TermPool& pool = declared.pool;
  pool.DeclareRank({"k", {"", 10}});
  Split(pool, {"m", "c", "j", 4}, declared.a);
  Split(pool, {"k", "d", "i", 4}, declared.a);
  Split(pool, {"c", "d2", "i2", 8}, declared.a);
  EXPECT_EQ(pool.RankOf("c").size, (Size{"context", 4}));
  EXPECT_EQ(pool.RankOf("j").size, (Size{"", 4}));
  EXPECT_EQ(pool.RankOf("d").size, (Size{"", 3}));
  EXPECT_EQ(pool.RankOf("d2").size, (Size{"context", 32}));
}

}  // namespace
}  // namespace sluice::einsum
