#include "cascades/einsum/term_pool.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace sluice::einsum {
namespace {

void InsertRanks(const Index& index, std::set<std::string>* ranks) {
  for (const Index::Term& term : index.terms) ranks->insert(term.rank);
}

}  // namespace

TermId TermPool::Add(Term term) {
  const auto [entry, is_new] = ids_.try_emplace(NodeText(term), std::ssize(terms_));
  if (is_new) {
    std::vector<std::vector<std::string>> args;
    args.reserve(term.args.size());
    for (const TermId arg : term.args) args.push_back(ranks_of_[arg]);
    ranks_of_.push_back(RanksOfNode(term, args));
    terms_.push_back(std::move(term));
  }
  return entry->second;
}

void TermPool::DeclareRank(Rank rank) {
  const auto found = std::ranges::find(ranks_, rank.name, &Rank::name);
  if (found == ranks_.end()) {
    ranks_.push_back(std::move(rank));
  } else {
    SLUICE_CHECK(*found == rank);
  }
}

const Rank& TermPool::RankOf(const std::string& name) const {
  const auto found = std::ranges::find(ranks_, name, &Rank::name);
  SLUICE_CHECK(found != ranks_.end());
  return *found;
}

TermId TermPool::Input(Tensor tensor, std::vector<Index> indices) {
  if (indices.empty()) {
    for (const std::string& rank : tensor.ranks) indices.push_back({.terms = {{rank}}});
  }
  Access access{.tensor = tensor.name, .indices = std::move(indices)};
  const auto [entry, is_new] = tensors_.try_emplace(tensor.name, tensor);
  SLUICE_CHECK(is_new || entry->second == tensor);
  return Add({.kind = TermKind::kInput, .access = std::move(access)});
}

const Tensor& TermPool::TensorOf(const std::string& name) const {
  const auto found = tensors_.find(name);
  SLUICE_CHECK(found != tensors_.end());
  return found->second;
}

std::vector<std::string> TermPool::RanksOfNode(
    const Term& term, const std::vector<std::vector<std::string>>& args) const {
  std::set<std::string> free;
  for (const std::vector<std::string>& arg : args) free.insert(arg.begin(), arg.end());
  for (const Index& index : term.access.indices) InsertRanks(index, &free);
  for (const Condition& condition : term.where) {
    InsertRanks(condition.left, &free);
    InsertRanks(condition.right, &free);
  }
  const bool split = term.kind == TermKind::kSplit && free.contains(term.rank);
  free.erase(term.rank);
  if (split) free.insert({term.outer, term.inner});
  std::vector<std::string> ordered;
  for (const Rank& rank : ranks_) {
    if (free.contains(rank.name)) ordered.push_back(rank.name);
  }
  SLUICE_CHECK(ordered.size() == free.size());  // every rank is declared
  return ordered;
}

}  // namespace sluice::einsum
