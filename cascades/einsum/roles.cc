#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cascades/einsum/analysis.h"

namespace sluice::einsum {
namespace {

bool Has(const std::vector<std::string>& ranks, std::string_view rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

std::vector<std::string> RanksOfAccess(const Access& access) {
  std::vector<std::string> ranks;
  for (const Index& index : access.indices) {
    for (const Index::Term& term : index.terms) {
      if (!Has(ranks, term.rank)) ranks.push_back(term.rank);
    }
  }
  return ranks;
}

Role RoleOf(bool left, bool right, bool reduced) {
  if (left && right) return reduced ? Role::kContraction : Role::kBatch;
  if (reduced) return Role::kReduced;
  if (left) return Role::kLeft;
  return right ? Role::kRight : Role::kBroadcast;
}

Mapping MappingOfPair(const Einsum& einsum, const EinsumRoles& roles) {
  const bool left = !roles.With(Role::kLeft).empty();
  const bool right = !roles.With(Role::kRight).empty();
  const bool product = einsum.map == Op::kMultiply && einsum.unary == Function::kNone;
  if (!einsum.reduce.empty()) {
    if (!product || einsum.reduce[0].op != Op::kAdd || roles.With(Role::kContraction).empty()) {
      return Mapping::kReduction;
    }
    if (left && right) {
      return roles.With(Role::kBatch).empty() ? Mapping::kGemm : Mapping::kGroupedGemm;
    }
    return left || right ? Mapping::kGemv : Mapping::kDot;
  }
  return product && left && right ? Mapping::kOuterProduct : Mapping::kElementwise;
}

Mapping MappingOfOne(const Einsum& einsum, const std::vector<std::string>& operand) {
  if (!einsum.reduce.empty()) return Mapping::kReduction;
  if (einsum.unary != Function::kNone || einsum.in.size() == 2) return Mapping::kElementwise;
  std::vector<std::string> common;
  for (const std::string& rank : RanksOfAccess(einsum.out)) {
    if (Has(operand, rank)) common.push_back(rank);
  }
  return common == operand ? Mapping::kCopy : Mapping::kPermute;
}

std::string Join(const std::vector<std::string>& ranks) {
  return ranks.size() == 1 ? ranks[0] : absl::StrCat("(", absl::StrJoin(ranks, ", "), ")");
}

}  // namespace

std::vector<std::string> EinsumRoles::With(Role role) const {
  std::vector<std::string> ranks;
  for (const RankRole& each : roles) {
    if (each.role == role) ranks.push_back(each.rank);
  }
  return ranks;
}

EinsumRoles RolesOf(const Einsum& einsum, std::string_view iterated) {
  std::vector<std::vector<std::string>> operands;
  for (const Access& access : einsum.in) {
    if (!access.is_constant()) operands.push_back(RanksOfAccess(access));
  }
  EinsumRoles result;
  const std::vector<std::string> ranks = RanksOf(einsum);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool reduced = i + einsum.reduce.size() >= ranks.size();
    const bool left = !operands.empty() && Has(operands[0], ranks[i]);
    const bool right = operands.size() == 2 && Has(operands[1], ranks[i]);
    result.roles.push_back(
        {ranks[i], ranks[i] == iterated ? Role::kIterated : RoleOf(left, right, reduced)});
  }
  result.mapping = operands.size() == 2
                       ? MappingOfPair(einsum, result)
                       : MappingOfOne(einsum, operands.empty() ? ranks : operands[0]);
  return result;
}

std::string Describe(const EinsumRoles& roles) {
  std::string text(NameOf(roles.mapping));
  const std::vector<std::string> batch = roles.With(Role::kBatch);
  std::vector<std::string> sides;
  bool names_batch = false;
  switch (roles.mapping) {
    case Mapping::kGemm:
    case Mapping::kGroupedGemm:
    case Mapping::kGemv:
    case Mapping::kDot:
    case Mapping::kOuterProduct:
      names_batch = true;
      for (const Role role : {Role::kLeft, Role::kContraction, Role::kRight}) {
        if (!roles.With(role).empty()) sides.push_back(Join(roles.With(role)));
      }
      break;
    case Mapping::kReduction:
      for (const RankRole& each : roles.roles) {
        if (each.role == Role::kReduced || each.role == Role::kContraction) {
          sides.push_back(each.rank);
        }
      }
      return absl::StrCat(text, " over ", Join(sides));
    case Mapping::kElementwise:
    case Mapping::kPermute:
    case Mapping::kCopy:
      for (const RankRole& each : roles.roles) sides.push_back(each.rank);
      break;
  }
  if (!sides.empty()) absl::StrAppend(&text, " ", absl::StrJoin(sides, " x "));
  if (names_batch && !batch.empty()) absl::StrAppend(&text, " for each ", Join(batch));
  return text;
}

}  // namespace sluice::einsum
