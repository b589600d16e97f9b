#include "cascades/einsum/conditions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::einsum {
namespace {

// Returns the side of a condition with the access's index for each rank of the result, or nothing
// if it cannot be written as an index.
std::optional<Index> AtAccess(const Index& side, const std::vector<std::string>& ranks,
                              const Access& access) {
  Index result{.terms = {}, .offset = side.offset, .end_of = side.end_of};
  for (const Index::Term& term : side.terms) {
    const Index& index = access.indices[std::ranges::find(ranks, term.rank) - ranks.begin()];
    if (!index.end_of.empty()) {
      if (term.factor != 1 || !result.end_of.empty()) return std::nullopt;
      result.end_of = index.end_of;
    }
    result.offset += term.factor * index.offset;
    for (const Index::Term& inner : index.terms) {
      const auto same = std::ranges::find(result.terms, inner.rank, &Index::Term::rank);
      const int64_t factor = term.factor * inner.factor;
      if (same == result.terms.end()) {
        result.terms.push_back({inner.rank, factor});
      } else {
        same->factor += factor;
      }
      if (std::abs(factor) > kMaxNumber) return std::nullopt;
    }
    if (std::abs(result.offset) > kMaxNumber) return std::nullopt;
  }
  std::erase_if(result.terms, [](const Index::Term& term) { return term.factor == 0; });
  const bool fits = std::ranges::all_of(
      result.terms, [](const Index::Term& term) { return std::abs(term.factor) <= kMaxNumber; });
  if (!fits || std::ssize(result.terms) > kMaxTermsOfIndex) return std::nullopt;
  return result;
}

// Returns the conditions that hold at each point where the einsum has a part.
std::vector<Condition> Inherited(const Einsum& einsum, const ResultDomains& domains) {
  std::vector<Condition> first = domains.Of(einsum.in[0]);
  if (einsum.in.size() == 1) return first;
  std::vector<Condition> second = domains.Of(einsum.in[1]);
  switch (einsum.map_merge) {
    case Merge::kAnd:
      std::ranges::move(second, std::back_inserter(first));
      return first;
    case Merge::kOr:
      std::erase_if(first, [&](const Condition& each) {
        return std::ranges::find(second, each) == second.end();
      });
      return first;
    case Merge::kLeft:
      return first;
    case Merge::kAll:
      break;
  }
  return {};
}

absl::Status Inherit(const ResultDomains& domains, Einsum* einsum) {
  for (Condition& each : Inherited(*einsum, domains)) {
    if (std::ranges::find(einsum->where, each) == einsum->where.end()) {
      einsum->where.push_back(std::move(each));
    }
  }
  if (std::ssize(einsum->where) <= kMaxConditions) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("einsum '", einsum->out.tensor, "': with the conditions of its operands it has ",
                   einsum->where.size(), " conditions; the maximum is ", kMaxConditions,
                   ". State fewer conditions, or reduce their ranks earlier."));
}

}  // namespace

void ResultDomains::Add(const Einsum& einsum) {
  Domain domain{.ranks = RanksOf(einsum), .where = einsum.where};
  domain.ranks.resize(einsum.out.indices.size());
  for (const Reduction& each : einsum.reduce) {
    // A reduction by `all` has a value at each point, and by `or` at each point with a part.
    if (each.merge == Merge::kAll) domain.where.clear();
    std::erase_if(domain.where,
                  [&](const Condition& condition) { return NamesRank(condition, each.rank); });
  }
  domains_[einsum.out.tensor] = std::move(domain);
}

std::vector<Condition> ResultDomains::Of(const Access& access) const {
  const auto domain = domains_.find(access.tensor);
  if (access.is_constant() || domain == domains_.end()) return {};
  std::vector<Condition> conditions;
  for (const Condition& each : domain->second.where) {
    auto left = AtAccess(each.left, domain->second.ranks, access);
    auto right = AtAccess(each.right, domain->second.ranks, access);
    if (!left || !right) continue;
    conditions.push_back({*std::move(left), each.comparison, *std::move(right)});
  }
  return conditions;
}

absl::StatusOr<Cascade> CarryConditions(Cascade cascade) {
  ResultDomains domains;
  for (Statement& statement : cascade.statements) {
    if (auto* const einsum = std::get_if<Einsum>(&statement)) {
      SLUICE_RETURN_IF_ERROR(Inherit(domains, einsum));
      domains.Add(*einsum);
      continue;
    }
    auto& iteration = std::get<Iteration>(statement);
    for (Einsum& each : iteration.init) SLUICE_RETURN_IF_ERROR(Inherit(domains, &each));
    for (Einsum& each : iteration.body) {
      SLUICE_RETURN_IF_ERROR(Inherit(domains, &each));
      if (CarriedPosition(iteration, each.out.tensor) < 0) domains.Add(each);
    }
  }
  return cascade;
}

}  // namespace sluice::einsum
