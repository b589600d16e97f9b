#include "cascades/einsum/levels.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::einsum {
namespace {

// Far more than levels need to settle, unless each iteration of a body waits for a whole pass.
constexpr int64_t kMostRounds = 64;

// The dimensions of inputs that a rank of a tensor comes from, as "K.0". A rank that comes from no
// input is itself, as "#m".
using Fibers = std::set<std::string>;

struct TensorLevel {
  int level = 0;
  std::vector<Fibers> fibers;          // of each rank
  std::map<std::string, int> reduced;  // fibers that went into the tensor, and when they ended
  const Iteration* carried_by = nullptr;
  int64_t carried_position = -1;
};

// Returns whether this changed anything.
bool Raise(std::map<std::string, int>* reduced, const std::string& fiber, int level) {
  const auto [entry, is_new] = reduced->try_emplace(fiber, level);
  if (!is_new && entry->second >= level) return false;
  entry->second = level;
  return true;
}

bool Mentions(const Index& index, std::string_view rank) {
  return std::ranges::any_of(index.terms, [&](const auto& term) { return term.rank == rank; });
}

class LevelFinder {
 public:
  LevelFinder(const Cascade& cascade, const RankFamily& family)
      : family_(family), einsums_(AllEinsums(cascade)) {
    for (const Tensor& tensor : AllTensors(cascade)) {
      TensorLevel& state = tensors_[tensor.name];
      state.fibers.resize(tensor.ranks.size());
    }
    std::set<std::string_view> results;
    for (const auto& [einsum, iteration, is_init] : einsums_) {
      results.insert(einsum->out.tensor);
      if (!is_init) continue;
      ++carried_;
      TensorLevel& state = tensors_[einsum->out.tensor];
      state.carried_by = iteration;
      state.carried_position = CarriedPosition(*iteration, einsum->out.tensor);
    }
    for (auto& [name, state] : tensors_) {
      if (results.contains(name)) continue;
      for (size_t i = 0; i < state.fibers.size(); ++i)
        state.fibers[i] = {absl::StrCat(name, ".", i)};
    }
  }

  std::vector<Level> Run() {
    // The carried tensors of an iteration are known only after its body. Each round completes the
    // fibers, and then the levels, of at least one more carried tensor.
    std::vector<Level> levels;
    changed_ = true;
    for (int64_t rounds = std::min(2 * (carried_ + 1), kMostRounds); changed_ && rounds > 0;
         --rounds) {
      changed_ = false;
      levels.clear();
      for (const PlacedEinsum& each : einsums_) levels.push_back(Visit(each));
    }
    return levels;
  }

 private:
  Level Visit(const PlacedEinsum& placed) {
    const Einsum& einsum = *placed.einsum;
    std::map<std::string, Fibers> fibers;  // of each rank of the einsum
    Level level;
    Fibers iterated;
    for (const std::string& rank : RanksOf(einsum)) {
      fibers[rank] = FibersOf(einsum, rank);
      if (!family_.contains(rank)) continue;
      level.iterates = true;
      iterated.insert(fibers[rank].begin(), fibers[rank].end());
    }
    std::map<std::string, int> reduced;
    for (const Access& access : einsum.in) {
      if (access.is_constant()) continue;
      level.level = std::max(level.level, tensors_[access.tensor].level);
      for (const auto& [fiber, end] : ReducedFor(access, placed.iteration)) {
        Raise(&reduced, fiber, end);
        if (iterated.contains(fiber)) level.level = std::max(level.level, end + 1);
      }
    }
    for (const Reduction& each : einsum.reduce) {
      if (!family_.contains(each.rank)) continue;
      for (const std::string& fiber : fibers[each.rank]) Raise(&reduced, fiber, level.level);
    }
    Store(einsum, level.level, fibers, reduced);
    return level;
  }

  Fibers FibersOf(const Einsum& einsum, const std::string& rank) {
    Fibers fibers;
    for (const Access& access : einsum.in) {
      for (size_t i = 0; i < access.indices.size(); ++i) {
        if (!Mentions(access.indices[i], rank)) continue;
        const Fibers& of_operand = tensors_[access.tensor].fibers[i];
        fibers.insert(of_operand.begin(), of_operand.end());
      }
    }
    if (fibers.empty()) fibers.insert("#" + rank);
    return fibers;
  }

  // Returns the fibers that the operand stands for. After its iteration, a carried tensor stands
  // for the fibers that it was carried along.
  std::map<std::string, int> ReducedFor(const Access& access, const Iteration* reader) {
    const TensorLevel& state = tensors_[access.tensor];
    std::map<std::string, int> reduced = state.reduced;
    if (state.carried_by != nullptr && state.carried_by != reader &&
        family_.contains(state.carried_by->rank) &&
        access.indices[state.carried_position].terms.empty()) {
      for (const std::string& fiber : state.fibers[state.carried_position]) {
        Raise(&reduced, fiber, state.level);
      }
    }
    return reduced;
  }

  // Adds facts about the result, which `init` and `body` may both write.
  void Store(const Einsum& einsum, int level, const std::map<std::string, Fibers>& fibers,
             const std::map<std::string, int>& reduced) {
    TensorLevel& state = tensors_[einsum.out.tensor];
    changed_ |= level > state.level;
    state.level = std::max(state.level, level);
    for (size_t i = 0; i < einsum.out.indices.size(); ++i) {
      for (const Index::Term& term : einsum.out.indices[i].terms) {
        for (const std::string& fiber : fibers.at(term.rank)) {
          changed_ |= state.fibers[i].insert(fiber).second;
        }
      }
    }
    for (const auto& [fiber, end] : reduced) changed_ |= Raise(&state.reduced, fiber, end);
  }

  const RankFamily& family_;
  std::vector<PlacedEinsum> einsums_;
  std::map<std::string, TensorLevel> tensors_;
  int64_t carried_ = 0;   // tensors
  bool changed_ = false;  // in this round
};

}  // namespace

RankFamily FamilyOf(const Cascade& cascade, std::string_view rank_or_symbol) {
  std::string symbol(rank_or_symbol);
  RankFamily family;
  for (const Rank& rank : cascade.ranks) {
    if (rank.name != rank_or_symbol) continue;
    family.insert(rank.name);
    symbol = rank.size.symbol;
  }
  for (const Rank& rank : cascade.ranks) {
    if (!symbol.empty() && rank.size.symbol == symbol) family.insert(rank.name);
  }
  return family;
}

std::vector<Level> LevelsOf(const Cascade& cascade, const RankFamily& family) {
  return LevelFinder(cascade, family).Run();
}

int PassesOf(const std::vector<Level>& levels) {
  int passes = 0;
  for (const Level& each : levels) {
    if (each.iterates) passes = std::max(passes, each.level + 1);
  }
  return passes;
}

}  // namespace sluice::einsum
