#include "cascades/derivation.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/term_shape.h"

namespace sluice {
namespace {

using einsum::Rule;
using einsum::TermId;
using einsum::TermPool;

// A term, and the step of the search that found it.
struct Found {
  TermId before;
  const Rule* rule;
};

// Replaces a part of a term wherever it occurs.
TermId Replace(TermPool& pool, TermId term, TermId part, TermId by) {
  std::map<TermId, TermId> known = {{part, by}};
  const auto replace = [&](const auto& self, TermId at) -> TermId {
    if (const auto found = known.find(at); found != known.end()) return found->second;
    einsum::Term node = pool.TermOf(at);
    for (TermId& arg : node.args) arg = self(self, arg);
    return known[at] = pool.Add(std::move(node));
  };
  return replace(replace, term);
}

void CollectParts(const TermPool& pool, TermId term, std::vector<TermId>* parts) {
  if (std::ranges::find(*parts, term) != parts->end()) return;
  parts->push_back(term);
  for (const TermId arg : pool.TermOf(term).args) CollectParts(pool, arg, parts);
}

bool IsOnePass(TermPool& pool, TermId term) {
  return IsVariant(ShapeOf(pool, term), AttentionVariant::Kind::kOnePass);
}

// Searches breadth first. Returns the terms from the last one back to the first.
absl::StatusOr<std::vector<TermId>> Search(TermPool& pool, const std::vector<Rule>& rules,
                                           TermId first, int64_t most_terms,
                                           std::map<TermId, Found>* found) {
  std::vector<TermId> open = {first};
  found->emplace(first, Found{first, nullptr});
  for (size_t next = 0; next < open.size() && std::ssize(open) <= most_terms; ++next) {
    const TermId term = open[next];
    if (IsOnePass(pool, term)) {
      std::vector<TermId> path = {term};
      while (path.back() != first) path.push_back(found->at(path.back()).before);
      return path;
    }
    std::vector<TermId> parts;
    CollectParts(pool, term, &parts);
    for (const Rule& rule : rules) {
      for (const TermId part : parts) {
        for (const TermId equal : rule.apply(pool, pool.TermOf(part))) {
          const TermId other = Replace(pool, term, part, einsum::PushSplits(pool, equal));
          if (found->emplace(other, Found{term, &rule}).second) open.push_back(other);
        }
      }
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no term of one pass is among the first ", open.size(), " that rewrites find"));
}

}  // namespace

absl::StatusOr<std::vector<DerivationStep>> DeriveOnePass(const einsum::AttentionShape& shape,
                                                          int64_t chunk, int64_t most_terms) {
  TermPool pool;
  std::vector<Rule> rules = einsum::DivisionRules();
  for (Rule& rule : einsum::SoftmaxRules({{"m", "c", "j", chunk}})) {
    rules.push_back(std::move(rule));
  }
  std::map<TermId, Found> found;
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<TermId> path,
      Search(pool, rules, einsum::AttentionTerm(pool, shape), most_terms, &found));
  std::ranges::reverse(path);
  std::vector<DerivationStep> steps;
  for (const TermId term : path) {
    const Rule* const rule = found.at(term).rule;
    einsum::Cascade cascade = einsum::Lower(pool, {{"Y", term}}, "attention");
    const int passes = einsum::Passes(cascade, "context");
    steps.push_back({.rule = rule == nullptr ? "" : rule->name,
                     .condition = rule == nullptr ? "" : rule->condition,
                     .cascade = std::move(cascade),
                     .passes = passes});
  }
  return steps;
}

}  // namespace sluice
