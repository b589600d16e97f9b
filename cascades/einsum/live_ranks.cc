#include "cascades/einsum/live_ranks.h"

#include <algorithm>
#include <map>
#include <set>

#include "cascades/einsum/levels.h"

namespace sluice::einsum {
namespace {

bool HasRank(const std::vector<std::string>& ranks, std::string_view rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

class LiveRanks {
 public:
  LiveRanks(const Cascade& cascade, const Sizes& size_of, std::vector<TensorFacts>* tensors)
      : cascade_(cascade), size_of_(size_of), einsums_(AllEinsums(cascade)) {
    for (TensorFacts& facts : *tensors) {
      if (!facts.is_input) results_[facts.tensor.name] = &facts;
    }
  }

  void Find() {
    std::set<std::string> done;
    for (const Rank& rank : cascade_.ranks) {
      if (done.contains(rank.name)) continue;
      const RankFamily family = FamilyOf(cascade_, rank.name);
      done.insert(family.begin(), family.end());
      if (Ends(family)) MarkBarriers(family);
    }
    for (const PlacedEinsum& each : einsums_) {
      MarkAccumulators(*each.einsum);
      if (each.iteration != nullptr && !each.is_init) MarkCarried(*each.iteration);
    }
    for (auto& [name, facts] : results_) {
      facts->live_bytes = PlacesOf(facts->live_ranks, size_of_) * facts->tensor.bytes_per_value;
    }
    MarkReplaced();
  }

 private:
  static void MarkLive(const std::string& rank, TensorFacts* facts) {
    if (HasRank(facts->tensor.ranks, rank) && !HasRank(facts->live_ranks, rank)) {
      facts->live_ranks.push_back(rank);
    }
  }

  // The result of a map overwrites an operand at the same point if nothing reads the operand later.
  void MarkReplaced() const {
    for (size_t i = 0; i < einsums_.size(); ++i) {
      const auto& [einsum, iteration, is_init] = einsums_[i];
      TensorFacts* const result = results_.at(einsum->out.tensor);
      if (!einsum->reduce.empty() || iteration != nullptr) continue;
      for (const Access& access : einsum->in) {
        const auto operand = results_.find(access.tensor);
        if (operand == results_.end() || access.indices != einsum->out.indices ||
            operand->second->live_bytes != result->live_bytes) {
          continue;
        }
        const bool is_read_later = std::any_of(
            einsums_.begin() + static_cast<ptrdiff_t>(i) + 1, einsums_.end(),
            [&](const PlacedEinsum& each) { return Reads(*each.einsum, access.tensor); });
        if (is_read_later || operand->second->tensor.home != Home::kTile) continue;
        result->replaces = access.tensor;
        break;
      }
    }
  }

  // Returns whether an einsum reduces a rank of the family, or an iteration carries a tensor along
  // one.
  bool Ends(const RankFamily& family) const {
    return std::ranges::any_of(einsums_, [&](const PlacedEinsum& each) {
      return (each.iteration != nullptr && family.contains(each.iteration->rank)) ||
             std::ranges::any_of(each.einsum->reduce, [&](const Reduction& reduction) {
               return family.contains(reduction.rank);
             });
    });
  }

  void MarkBarriers(const RankFamily& family) const {
    const std::vector<Level> levels = LevelsOf(cascade_, family);
    std::map<std::string, int> written;
    for (size_t i = 0; i < einsums_.size(); ++i) {
      int& level = written[einsums_[i].einsum->out.tensor];
      level = std::max(level, levels[i].level);
    }
    for (size_t i = 0; i < einsums_.size(); ++i) {
      for (const Access& access : einsums_[i].einsum->in) {
        const auto found = results_.find(access.tensor);
        if (found == results_.end() || levels[i].level <= written[access.tensor]) continue;
        for (const std::string& rank : WithInnerRanks(family)) MarkLive(rank, found->second);
      }
    }
  }

  // Returns the family and the ranks within one of its places: c and j for an index c*512+j.
  RankFamily WithInnerRanks(const RankFamily& family) const {
    RankFamily ranks = family;
    for (const PlacedEinsum& each : einsums_) {
      for (const Access& access : each.einsum->in) {
        for (const Index& index : access.indices) {
          for (const Index::Term& outer : index.terms) {
            if (!family.contains(outer.rank)) continue;
            for (const Index::Term& term : index.terms) {
              if (term.factor < outer.factor) ranks.insert(term.rank);
            }
          }
        }
      }
    }
    return ranks;
  }

  void MarkAccumulators(const Einsum& einsum) const {
    for (const Access& access : einsum.in) {
      const auto operand = results_.find(access.tensor);
      if (operand == results_.end()) continue;
      std::vector<std::string> own;
      for (const Index& index : access.indices) {
        for (const Index::Term& term : index.terms) own.push_back(term.rank);
      }
      std::vector<std::string> streamed;
      for (const Reduction& each : einsum.reduce) {
        if (HasRank(own, each.rank) && !HasRank(operand->second->live_ranks, each.rank)) {
          streamed.push_back(each.rank);
        }
      }
      std::vector<std::string> lacking = RanksOf(einsum);
      lacking.resize(lacking.size() - einsum.reduce.size());
      std::erase_if(lacking, [&](const std::string& rank) { return HasRank(own, rank); });
      if (streamed.empty() || lacking.empty()) continue;
      // Either the operand is kept along the reduced rank, or the sums are kept along the others.
      TensorFacts* const result = results_.at(einsum.out.tensor);
      if (PlacesOf(streamed, size_of_) < PlacesOf(lacking, size_of_)) {
        for (const std::string& rank : streamed) MarkLive(rank, operand->second);
      } else {
        for (const std::string& rank : lacking) MarkLive(rank, result);
      }
    }
  }

  void MarkCarried(const Iteration& iteration) const {
    for (const Einsum& init : iteration.init) {
      TensorFacts* const carried = results_.at(init.out.tensor);
      for (const std::string& rank : carried->tensor.ranks) {
        if (rank == iteration.rank) continue;
        const bool is_outside = std::ranges::all_of(
            iteration.body, [&](const Einsum& each) { return HasRank(RanksOf(each), rank); });
        if (!is_outside) MarkLive(rank, carried);
      }
    }
  }

  const Cascade& cascade_;
  const Sizes& size_of_;
  const std::vector<PlacedEinsum> einsums_;
  std::map<std::string, TensorFacts*> results_;
};

}  // namespace

double PlacesOf(const std::vector<std::string>& ranks, const Sizes& size_of) {
  double places = 1;
  for (const std::string& rank : ranks) places *= static_cast<double>(size_of.at(rank));
  return places;
}

void FindLiveRanks(const Cascade& cascade, const Sizes& size_of,
                   std::vector<TensorFacts>* tensors) {
  LiveRanks(cascade, size_of, tensors).Find();
}

}  // namespace sluice::einsum
