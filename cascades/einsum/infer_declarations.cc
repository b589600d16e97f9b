#include "cascades/einsum/infer_declarations.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice::einsum {
namespace {

class Inferrer {
 public:
  explicit Inferrer(Cascade* cascade) : cascade_(*cascade) {}

  absl::Status Run() {
    const std::vector<PlacedEinsum> einsums = AllEinsums(cascade_);
    std::set<std::string> results, known;
    for (const PlacedEinsum& each : einsums) {
      if (each.iteration != nullptr) AddRank(each.iteration->rank);
      AddRanks(*each.einsum);
      results.insert(each.einsum->out.tensor);
    }
    for (const PlacedEinsum& each : einsums) {
      for (const Access& access : each.einsum->in) {
        if (access.is_constant() || results.contains(access.tensor)) continue;
        if (IsAtSingleRanks(access) && known.insert(access.tensor).second) AddTensor(access);
      }
    }
    for (const PlacedEinsum& each : einsums) {
      for (const Access& access : each.einsum->in) {
        if (access.is_constant() || results.contains(access.tensor)) continue;
        if (known.contains(access.tensor)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("tensor '", access.tensor, "' is read at composed indices only, so its ",
                         "ranks are unknown. Declare the ranks and tensors of the cascade, such ",
                         "as `rank m = context` and `tensor K[m, e] arena`."));
      }
    }
    for (const PlacedEinsum& each : einsums) {
      const Access& out = each.einsum->out;
      const bool is_read = std::ranges::any_of(
          einsums, [&](const PlacedEinsum& other) { return Reads(*other.einsum, out.tensor); });
      if (!is_read && IsAtSingleRanks(out) && known.insert(out.tensor).second) AddTensor(out);
    }
    return absl::OkStatus();
  }

 private:
  static bool IsAtSingleRanks(const Access& access) {
    return std::ranges::all_of(access.indices,
                               [](const Index& index) { return SingleRank(index) != nullptr; });
  }

  void AddTensor(const Access& access) {
    Tensor tensor{.name = access.tensor, .ranks = {}};
    for (const Index& index : access.indices) tensor.ranks.push_back(index.terms[0].rank);
    cascade_.tensors.push_back(std::move(tensor));
  }

  void AddRank(const std::string& name) {
    if (std::ranges::find(cascade_.ranks, name, &Rank::name) == cascade_.ranks.end()) {
      cascade_.ranks.push_back({name, {name}});
    }
  }

  void AddRanks(const Index& index) {
    for (const Index::Term& term : index.terms) AddRank(term.rank);
    if (!index.end_of.empty()) AddRank(index.end_of);
  }

  void AddRanks(const Einsum& einsum) {
    for (const Index& index : einsum.out.indices) AddRanks(index);
    for (const Access& access : einsum.in) {
      for (const Index& index : access.indices) AddRanks(index);
    }
    for (const Reduction& each : einsum.reduce) AddRank(each.rank);
    for (const Condition& each : einsum.where) {
      AddRanks(each.left);
      AddRanks(each.right);
    }
  }

  Cascade& cascade_;
};

}  // namespace

absl::Status InferDeclarations(Cascade* cascade) { return Inferrer(cascade).Run(); }

}  // namespace sluice::einsum
