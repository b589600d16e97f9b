#include "tests/cascades/einsum/term_values.h"

#include <algorithm>
#include <cmath>

#include "base/ceil_div.h"
#include "base/check.h"

namespace sluice::einsum {
namespace {

double ApplyFunction(Function function, double x) {
  switch (function) {
    case Function::kExp:
      return std::exp(x);
    case Function::kLog:
      return std::log(x);
    case Function::kSqrt:
      return std::sqrt(x);
    case Function::kTanh:
      return std::tanh(x);
    default:
      SLUICE_CHECK(function == Function::kNone);
      return x;
  }
}

double ApplyOp(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return a / b;
    case Op::kMax:
      return std::max(a, b);
    case Op::kMin:
      return std::min(a, b);
  }
  SLUICE_CHECK(false);
}

std::optional<double> Combine(Op op, std::optional<double> a, std::optional<double> b) {
  if (a && b) return ApplyOp(op, *a, *b);
  if (op == Op::kMultiply || op == Op::kDivide) return std::nullopt;
  if (op == Op::kSubtract) return a;
  return a ? a : b;
}

}  // namespace

std::optional<double> TermValues::At(TermId id, const Point& point) {
  Point own;
  std::vector<int64_t> key;
  for (const std::string& rank : pool_.RanksOf(id)) {
    own[rank] = point.at(rank);
    key.push_back(own[rank]);
  }
  if (const auto found = known_.find({id, key}); found != known_.end()) return found->second;
  const std::optional<double> value = Compute(pool_.TermOf(id), std::move(own));
  known_[{id, key}] = value;
  return value;
}

std::vector<double> TermValues::All(TermId id, const std::vector<std::string>& ranks) {
  const Term& term = pool_.TermOf(id);
  const bool is_max = term.kind == TermKind::kReduce && term.op == Op::kMax;
  const double absent = is_max ? -INFINITY : 0;
  std::vector<double> values;
  Point point;
  const auto visit = [&](const auto& self, size_t at) -> void {
    if (at == ranks.size()) {
      values.push_back(At(id, point).value_or(absent));
      return;
    }
    for (int64_t i = 0; i < SizeOf(ranks[at]); ++i) {
      point[ranks[at]] = i;
      self(self, at + 1);
    }
  };
  visit(visit, 0);
  return values;
}

int64_t TermValues::SizeOf(const std::string& rank) const {
  const Size& size = pool_.RankOf(rank).size;
  if (size.symbol.empty()) return size.divisor;
  return CeilDiv(sizes_.at(size.symbol), size.divisor);
}

std::optional<double> TermValues::Compute(const Term& term, Point point) {
  switch (term.kind) {
    case TermKind::kInput:
      return Read(term.access, point);
    case TermKind::kConstant:
      return term.value;
    case TermKind::kUnary: {
      const std::optional<double> a = At(term.args[0], point);
      return a ? std::optional(ApplyFunction(term.function, *a)) : a;
    }
    case TermKind::kMap:
      return Combine(term.op, At(term.args[0], point), At(term.args[1], point));
    case TermKind::kReduce:
      return Reduced(term, std::move(point));
    case TermKind::kSplit: {
      const int64_t at = point[term.outer] * term.chunk + point[term.inner];
      if (at >= SizeOf(term.rank)) return std::nullopt;
      point[term.rank] = at;
      return At(term.args[0], point);
    }
    case TermKind::kFold:
    case TermKind::kMerge:
      return Streamed(term, std::move(point));
  }
  SLUICE_CHECK(false);
}

std::optional<double> TermValues::Reduced(const Term& term, Point point) {
  std::optional<double> result;
  for (int64_t i = 0; i < SizeOf(term.rank); ++i) {
    point[term.rank] = i;
    if (!Admits(term.where, point)) continue;
    const std::optional<double> value = At(term.args[0], point);
    if (value) result = result ? ApplyOp(term.op, *result, *value) : *value;
  }
  return result;
}

std::optional<double> TermValues::Streamed(const Term& term, Point point) {
  double max = -INFINITY;
  for (int64_t i = 0; i < SizeOf(term.rank); ++i) {
    point[term.rank] = i;
    max = std::max(max, At(term.args[0], point).value_or(-INFINITY));
  }
  std::optional<double> result;
  for (int64_t i = 0; i < SizeOf(term.rank); ++i) {
    point[term.rank] = i;
    const std::optional<double> a = At(term.args[0], point);
    const std::optional<double> b = At(term.args[1], point);
    if (a && b) result = result.value_or(0) + std::exp(*a - max) * *b;
  }
  return result;
}

std::optional<double> TermValues::Read(const Access& access, const Point& point) const {
  const Tensor& tensor = pool_.TensorOf(access.tensor);
  int64_t offset = 0;
  for (size_t i = 0; i < tensor.ranks.size(); ++i) {
    const int64_t size = SizeOf(tensor.ranks[i]);
    const int64_t at = IndexAt(access.indices[i], point);
    if (at < 0 || at >= size) return std::nullopt;
    offset = offset * size + at;
  }
  return inputs_.at(access.tensor)[offset];
}

int64_t TermValues::IndexAt(const Index& index, const Point& point) const {
  int64_t at = index.offset + (index.end_of.empty() ? 0 : SizeOf(index.end_of));
  for (const Index::Term& term : index.terms) at += term.factor * point.at(term.rank);
  return at;
}

bool TermValues::Admits(const std::vector<Condition>& where, const Point& point) const {
  return std::ranges::all_of(where, [&](const Condition& condition) {
    const int64_t left = IndexAt(condition.left, point);
    const int64_t right = IndexAt(condition.right, point);
    switch (condition.comparison) {
      case Comparison::kLess:
        return left < right;
      case Comparison::kLessEqual:
        return left <= right;
      case Comparison::kEqual:
        return left == right;
    }
    SLUICE_CHECK(false);
  });
}

}  // namespace sluice::einsum
