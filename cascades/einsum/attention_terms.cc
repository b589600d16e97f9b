#include "cascades/einsum/attention_terms.h"

#include <utility>
#include <vector>

#include "cascades/einsum/lower_fuse.h"

namespace sluice::einsum {
namespace {

TermId Sum(TermPool& pool, const std::string& rank, TermId a, TermId b) {
  return pool.Reduce(Op::kAdd, rank, pool.Map(Op::kMultiply, a, b));
}

void DeclareRanks(TermPool& pool) {
  pool.DeclareRank({"b", {"sequences"}});
  pool.DeclareRank({"h", {"kv_heads"}});
  pool.DeclareRank({"g", {"group"}});
  pool.DeclareRank({"p", {"tokens"}});
  pool.DeclareRank({"m", {"context"}});
  pool.DeclareRank({"e", {"head_dim"}});
  pool.DeclareRank({"f", {"head_dim"}});
}

TermId Scores(TermPool& pool, const AttentionShape& shape) {
  const TermId q = pool.Input({.name = "Q", .ranks = {"b", "p", "h", "g", "e"}});
  const TermId k = pool.Input({.name = "K",
                               .ranks = {"b", "m", "h", "e"},
                               .home = shape.kv.home,
                               .bytes_per_value = shape.kv.bytes_per_value});
  TermId scores = Sum(pool, "e", q, k);
  if (shape.scale != 1) scores = pool.Map(Op::kMultiply, scores, pool.Constant(shape.scale));
  if (shape.query_gain) {
    const TermId gain = pool.Input({.name = "C", .ranks = {"h", "g"}, .home = Home::kWeight});
    scores = pool.Map(Op::kMultiply, scores, gain);
  }
  if (shape.soft_cap != 0) {
    const TermId cap = pool.Constant(shape.soft_cap);
    const TermId squashed = pool.Unary(Function::kTanh, pool.Map(Op::kDivide, scores, cap));
    scores = pool.Map(Op::kMultiply, squashed, cap);
  }
  if (shape.bias) {
    const TermId bias =
        pool.Input({.name = "R", .ranks = {"h", "g", "p", "m"}, .home = Home::kWeight});
    scores = pool.Map(Op::kAdd, scores, bias);
  }
  const auto add_relative = [&](const char* table, TermId rows) {
    const TermId positions =
        pool.Input({.name = table, .ranks = {"h", "g", "p", "m", "e"}, .home = Home::kTile});
    TermId products = Sum(pool, "e", rows, positions);
    if (shape.scale != 1) products = pool.Map(Op::kMultiply, products, pool.Constant(shape.scale));
    scores = pool.Map(Op::kAdd, scores, products);
  };
  if (shape.relative_keys) add_relative("T", q);
  if (shape.relative_queries) add_relative("U", k);
  return scores;
}

}  // namespace

TermId ExcludeOwnValue(TermPool& pool, const AttentionShape& shape, TermId y) {
  if (shape.xsa == XsaForm::kNone) return y;
  const TermId own = pool.Input({.name = "O", .ranks = {"b", "p", "h", "f"}});
  const TermId squared = Sum(pool, "f", own, own);
  const bool norm = shape.xsa == XsaForm::kNorm;
  const TermId v = norm ? pool.Map(Op::kDivide, own, pool.Unary(Function::kSqrt, squared)) : own;
  TermId along = Sum(pool, "f", y, v);
  if (shape.gate) {
    TermId gate = pool.Input({.name = "W", .ranks = {"h", "g"}, .home = Home::kWeight});
    if (!norm) gate = pool.Map(Op::kDivide, gate, squared);
    along = pool.Map(Op::kMultiply, along, gate);
  } else if (!norm) {
    along = pool.Map(Op::kDivide, along, squared);
  }
  return pool.Map(Op::kSubtract, y, pool.Map(Op::kMultiply, along, v));
}

TermId AttentionTerm(TermPool& pool, const AttentionShape& shape) {
  DeclareRanks(pool);
  std::vector<Condition> where;
  if (shape.causal) where.push_back(CausalCondition());
  if (shape.window > 0) {
    for (Condition& each : WindowConditions(shape.window, shape.causal)) {
      where.push_back(std::move(each));
    }
  }
  const TermId scores = Scores(pool, shape);
  TermId share;
  if (shape.silu_share != 0) {
    const TermId silu = pool.Map(Op::kMultiply, scores, pool.Unary(Function::kSigmoid, scores));
    share = pool.Map(Op::kMultiply, silu, pool.Constant(shape.silu_share));
  } else {
    const TermId max = pool.Reduce(Op::kMax, "m", scores, where);
    const TermId weight = pool.Unary(Function::kExp, pool.Map(Op::kSubtract, scores, max));
    share = pool.Map(Op::kDivide, weight, pool.Reduce(Op::kAdd, "m", weight, where));
  }
  const TermId values = pool.Input({.name = "V",
                                    .ranks = {"b", "m", "h", "f"},
                                    .home = shape.kv.home,
                                    .bytes_per_value = shape.kv.bytes_per_value});
  const TermId y = pool.Reduce(Op::kAdd, "m", pool.Map(Op::kMultiply, share, values), where);
  return ExcludeOwnValue(pool, shape, y);
}

std::vector<Condition> WindowConditions(int64_t window, bool causal) {
  const auto less = [&](const char* near, const char* far) {
    return Condition{.left = {.terms = {{near}}, .end_of = far},
                     .comparison = Comparison::kLess,
                     .right = {.terms = {{far}}, .offset = window, .end_of = near}};
  };
  std::vector<Condition> conditions = {less("p", "m")};
  if (!causal) conditions.push_back(less("m", "p"));
  return conditions;
}

Condition CausalCondition() {
  return {.left = {.terms = {{"m"}}, .end_of = "p"},
          .comparison = Comparison::kLessEqual,
          .right = {.terms = {{"p"}}, .end_of = "m"}};
}

OwnValue OwnValueOfAttention() {
  return {.values = AccessOf("V", {"b", "m", "h", "f"}),
          .own = AccessOf("O", {"b", "p", "h", "f"}),
          .until_self = CausalCondition()};
}

}  // namespace sluice::einsum
