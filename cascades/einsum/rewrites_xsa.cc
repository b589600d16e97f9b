#include <algorithm>
#include <optional>

#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/rewrites_match.h"

namespace sluice::einsum {
namespace {

// The part of y along a direction: (sum over `rank` of y x v) {x or /} weight x u.
struct Projection {
  std::string rank;
  TermId v;
  std::optional<TermId> weight;
  Op weight_op = Op::kMultiply;
  TermId u;
};

// Returns the projections of y that `id` is, with (sum of y x v) at `dot`.
std::vector<Projection> DotsOf(const TermGraph& graph, TermId id, TermId y) {
  std::vector<Projection> found;
  for (const Term& dot : NodesOfKind(graph, id, TermKind::kReduce)) {
    if (!IsSum(dot) || !dot.where.empty()) continue;
    for (const Operands& product : ProductsOf(graph, dot.args[0])) {
      if (graph.Find(product.a) != graph.Find(y)) continue;
      found.push_back({.rank = dot.rank, .v = product.b, .weight = {}, .u = product.b});
    }
  }
  return found;
}

std::vector<Projection> ProjectionsOf(const TermGraph& graph, TermId id, TermId y) {
  std::vector<Projection> found;
  const auto add = [&](TermId dot, std::optional<TermId> weight, Op op, TermId u) {
    for (Projection& projection : DotsOf(graph, dot, y)) {
      projection.weight = weight;
      projection.weight_op = op;
      projection.u = u;
      found.push_back(projection);
    }
  };
  for (const Operands& outer : ProductsOf(graph, id)) {
    add(outer.a, std::nullopt, Op::kMultiply, outer.b);
    for (const Operands& inner : ProductsOf(graph, outer.a)) {
      add(inner.a, inner.b, Op::kMultiply, outer.b);
    }
    for (const Operands& inner : MapsOf(graph, outer.a, Op::kDivide)) {
      add(inner.a, inner.b, Op::kDivide, outer.b);
    }
  }
  return found;
}

// Returns y minus its projection.
TermId Exclude(TermGraph& graph, const Projection& projection, TermId y) {
  TermId along = graph.Reduce(Op::kAdd, projection.rank, graph.Map(Op::kMultiply, y, projection.v));
  if (projection.weight) along = graph.Map(projection.weight_op, along, *projection.weight);
  return graph.Map(Op::kSubtract, y, graph.Map(Op::kMultiply, along, projection.u));
}

// XSA(sum over r of a) = sum over r of XSA(a), and the same of folds and merges
std::vector<TermId> ExcludeFromPartials(TermGraph& graph, const Term& node) {
  if (!IsMap(node, Op::kSubtract)) return {};
  std::vector<TermId> equal;
  for (const Term& y : graph.NodesOf(node.args[0])) {
    const bool streams = y.kind == TermKind::kFold || y.kind == TermKind::kMerge;
    if (!streams && !IsSum(y)) continue;
    for (const Projection& projection : ProjectionsOf(graph, node.args[1], node.args[0])) {
      if (y.rank == projection.rank || graph.HasRank(projection.v, y.rank) ||
          graph.HasRank(projection.u, y.rank) ||
          (projection.weight && graph.HasRank(*projection.weight, y.rank))) {
        continue;
      }
      if (streams && graph.HasRank(y.args[0], projection.rank)) continue;
      Term sum = y;
      sum.args.back() = Exclude(graph, projection, y.args.back());
      equal.push_back(graph.Add(sum));
    }
  }
  return equal;
}

// Returns whether the term is the tensor at exactly these indices.
bool IsAccess(const TermGraph& graph, TermId id, const Access& access) {
  return std::ranges::any_of(NodesOfKind(graph, id, TermKind::kInput),
                             [&](const Term& node) { return node.access == access; });
}

// Returns whether the term is the sum over `rank` of the tensor's squares.
bool IsSquaredNorm(const TermGraph& graph, TermId id, const std::string& rank,
                   const Access& tensor) {
  for (const Term& sum : NodesOfKind(graph, id, TermKind::kReduce)) {
    if (!IsSum(sum) || sum.rank != rank || !sum.where.empty()) continue;
    for (const Operands& square : MapsOf(graph, sum.args[0], Op::kMultiply)) {
      if (IsAccess(graph, square.a, tensor) && IsAccess(graph, square.b, tensor)) return true;
    }
  }
  return false;
}

// Returns whether the term is the tensor divided by its norm over `rank`.
bool IsDirection(const TermGraph& graph, TermId id, const std::string& rank, const Access& tensor) {
  for (const Operands& ratio : MapsOf(graph, id, Op::kDivide)) {
    if (!IsAccess(graph, ratio.a, tensor)) continue;
    for (const TermId squared : ArgumentsOf(graph, ratio.b, Function::kSqrt)) {
      if (IsSquaredNorm(graph, squared, rank, tensor)) return true;
    }
  }
  return false;
}

// Returns whether nothing along the tensor remains: the projection is (y.v) v / |v|^2, without a
// gate.
bool IsWhole(const TermGraph& graph, const Projection& projection, const Access& tensor) {
  if (graph.Find(projection.v) != graph.Find(projection.u)) return false;
  if (!projection.weight) return IsDirection(graph, projection.v, projection.rank, tensor);
  return projection.weight_op == Op::kDivide && IsAccess(graph, projection.v, tensor) &&
         IsSquaredNorm(graph, *projection.weight, projection.rank, tensor);
}

// XSA(sum of w x V where m <= self) = XSA(sum of w x V where m < self)
decltype(Rule::apply) LeaveOutSelf(const OwnValue& own) {
  return [own](TermGraph& graph, const Term& node) {
    std::vector<TermId> equal;
    if (!IsMap(node, Op::kSubtract)) return equal;
    for (const Term& sum : NodesOfKind(graph, node.args[0], TermKind::kReduce)) {
      const auto self = std::ranges::find(sum.where, own.until_self);
      if (!IsSum(sum) || self == sum.where.end()) continue;
      const bool of_values =
          std::ranges::any_of(ProductsOf(graph, sum.args[0]), [&](const Operands& product) {
            return IsAccess(graph, product.b, own.values) && graph.HasRank(product.b, sum.rank);
          });
      if (!of_values) continue;
      for (const Projection& projection : ProjectionsOf(graph, node.args[1], node.args[0])) {
        if (!IsWhole(graph, projection, own.own)) continue;
        Term less = sum;
        less.where[self - sum.where.begin()].comparison = Comparison::kLess;
        equal.push_back(Exclude(graph, projection, graph.Add(less)));
      }
    }
    return equal;
  };
}

}  // namespace

std::vector<Rule> XsaRules(const std::optional<OwnValue>& own_value) {
  std::vector<Rule> rules = {{"own values are excluded from partials",
                              "the direction and its weight lack the rank of the partials",
                              ExcludeFromPartials}};
  if (own_value) {
    rules.push_back({"the self term is left out", "no gate, and the own value is not zero",
                     LeaveOutSelf(*own_value)});
  }
  return rules;
}

}  // namespace sluice::einsum
