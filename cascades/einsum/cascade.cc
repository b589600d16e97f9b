#include "cascades/einsum/cascade.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace sluice::einsum {

const std::string* SingleRank(const Index& index) {
  if (index.terms.size() != 1 || index.terms[0].factor != 1) return nullptr;
  if (!index.end_of.empty() || index.offset != 0) return nullptr;
  return &index.terms[0].rank;
}

bool NamesRank(const Condition& condition, std::string_view rank) {
  const auto names = [rank](const Index& index) {
    return std::ranges::any_of(index.terms, [&](const auto& term) { return term.rank == rank; });
  };
  return names(condition.left) || names(condition.right);
}

std::vector<Tensor> AllTensors(const Cascade& cascade) {
  std::vector<Tensor> tensors = cascade.tensors;
  absl::flat_hash_set<std::string> known;
  for (const Tensor& tensor : tensors) known.insert(tensor.name);
  for (const auto& [einsum, iteration, is_init] : AllEinsums(cascade)) {
    if (!known.insert(einsum->out.tensor).second) continue;
    Tensor& tensor =
        tensors.emplace_back(Tensor{.name = einsum->out.tensor, .ranks = {}, .home = Home::kTile});
    for (const Index& index : einsum->out.indices) {
      tensor.ranks.push_back(index.terms.empty() ? iteration->rank : index.terms[0].rank);
    }
  }
  return tensors;
}

std::vector<PlacedEinsum> AllEinsums(const Cascade& cascade) {
  std::vector<PlacedEinsum> all;
  for (const Statement& statement : cascade.statements) {
    if (const auto* einsum = std::get_if<Einsum>(&statement)) {
      all.push_back({einsum});
      continue;
    }
    const auto& iteration = std::get<Iteration>(statement);
    for (const Einsum& each : iteration.init) all.push_back({&each, &iteration, true});
    for (const Einsum& each : iteration.body) all.push_back({&each, &iteration});
  }
  return all;
}

std::vector<std::string> RanksOf(const Einsum& einsum) {
  std::vector<std::string> ranks;
  for (const Index& index : einsum.out.indices) {
    if (!index.terms.empty()) ranks.push_back(index.terms[0].rank);
  }
  for (const Reduction& each : einsum.reduce) ranks.push_back(each.rank);
  return ranks;
}

bool Reads(const Einsum& einsum, std::string_view tensor) {
  return std::ranges::find(einsum.in, tensor, &Access::tensor) != einsum.in.end();
}

int64_t CarriedPosition(const Iteration& iteration, const std::string& tensor) {
  for (const Einsum& einsum : iteration.init) {
    if (einsum.out.tensor != tensor) continue;
    for (int64_t i = 0; i < std::ssize(einsum.out.indices); ++i) {
      if (einsum.out.indices[i].terms.empty()) return i;
    }
  }
  return -1;
}

}  // namespace sluice::einsum
