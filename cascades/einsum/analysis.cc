#include "cascades/einsum/analysis.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cascades/einsum/conditions.h"
#include "cascades/einsum/levels.h"
#include "cascades/einsum/live_ranks.h"
#include "cascades/einsum/point_count.h"

namespace sluice::einsum {
namespace {

Work WorkOf(const Einsum& einsum, double points) {
  Work work;
  if (einsum.in.size() == 2) {
    (einsum.map == Op::kDivide ? work.divisions : work.flops) += points;
  }
  if (!einsum.reduce.empty()) work.flops += points;
  switch (einsum.unary) {
    case Function::kNone:
      break;
    case Function::kAbs:
    case Function::kRelu:
      work.flops += points;
      break;
    case Function::kSqrt:
      work.divisions += points;
      break;
    case Function::kExp:
    case Function::kLog:
    case Function::kTanh:
    case Function::kSigmoid:
    case Function::kGelu:
    case Function::kCos:
    case Function::kSin:
      work.exponentials += points;
  }
  return work;
}

void Add(const Work& work, Work* sum) {
  sum->flops += work.flops;
  sum->exponentials += work.exponentials;
  sum->divisions += work.divisions;
}

class Analyzer {
 public:
  Analyzer(const Cascade& cascade, const Sizes& sizes)
      : cascade_(cascade),
        sizes_(sizes),
        einsums_(AllEinsums(cascade)),
        tensors_(AllTensors(cascade)) {}

  absl::StatusOr<Analysis> Run(std::string_view stream) {
    for (const Rank& rank : cascade_.ranks) {
      SLUICE_ASSIGN_OR_RETURN(size_of_[rank.name], SizeOf(rank, sizes_));
    }
    if (cascade_.ranks.empty()) {
      return absl::InvalidArgumentError(
          "the cascade has no rank, so nothing is iterated over; declare a rank");
    }
    Analysis analysis;
    analysis.stream = stream.empty() ? LargestStream() : std::string(stream);
    const RankFamily family = FamilyOf(cascade_, analysis.stream);
    if (family.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the cascade has no rank or symbol '", analysis.stream, "'"));
    }
    levels_ = LevelsOf(cascade_, family);
    analysis.passes = PassesOf(levels_);
    SLUICE_RETURN_IF_ERROR(AddEinsums(&analysis));
    for (const Tensor& tensor : tensors_) analysis.tensors.push_back(FactsOf(tensor));
    FindLiveRanks(cascade_, size_of_, &analysis.tensors);
    AddPasses(&analysis);
    analysis.hoists = Hoists(cascade_);
    return analysis;
  }

 private:
  // Returns the symbol, or the rank if it has none, of the largest reduced or iterated rank. Ranks
  // of families that no output has come first, and the first of equal ranks is returned.
  std::string LargestStream() const {
    std::set<std::string> candidates;
    for (const auto& [einsum, iteration, is_init] : einsums_) {
      for (const Reduction& each : einsum->reduce) candidates.insert(each.rank);
      if (iteration != nullptr) candidates.insert(iteration->rank);
    }
    const RankFamily of_outputs = FamiliesOfOutputs();
    std::string stream;
    std::pair<bool, int64_t> best;
    for (const Rank& rank : cascade_.ranks) {
      if (!candidates.empty() && !candidates.contains(rank.name)) continue;
      const bool constant = rank.size.symbol.empty();
      const std::pair<bool, int64_t> value = {
          !of_outputs.contains(rank.name),
          constant ? rank.size.divisor : sizes_.at(rank.size.symbol)};
      if (value <= best) continue;
      best = value;
      stream = constant ? rank.name : rank.size.symbol;
    }
    return stream;
  }

  // Returns the ranks, with their families, of the results that nothing reads.
  RankFamily FamiliesOfOutputs() const {
    RankFamily ranks;
    for (const PlacedEinsum& each : einsums_) {
      const bool is_read = std::ranges::any_of(einsums_, [&](const PlacedEinsum& other) {
        return Reads(*other.einsum, each.einsum->out.tensor);
      });
      if (is_read) continue;
      for (const std::string& rank : RanksOf(*each.einsum)) {
        if (std::ranges::find(each.einsum->reduce, rank, &Reduction::rank) ==
            each.einsum->reduce.end()) {
          ranks.merge(FamilyOf(cascade_, rank));
        }
      }
    }
    return ranks;
  }

  absl::Status AddEinsums(Analysis* analysis) const {
    PointCounter counter(cascade_, size_of_);
    for (size_t i = 0; i < einsums_.size(); ++i) {
      const auto& [einsum, iteration, is_init] = einsums_[i];
      EinsumFacts& facts = analysis->einsums.emplace_back();
      facts.result = einsum->out.tensor;
      facts.is_init = is_init;
      facts.roles = RolesOf(*einsum, iteration == nullptr ? "" : iteration->rank);
      facts.level = levels_[i].level;
      SLUICE_ASSIGN_OR_RETURN(facts.points, counter.Count(*einsum));
      facts.work = WorkOf(*einsum, facts.points);
      Add(facts.work, &analysis->work);
    }
    return absl::OkStatus();
  }

  TensorFacts FactsOf(const Tensor& tensor) const {
    TensorFacts facts;
    facts.tensor = tensor;
    facts.is_input = true;
    for (const std::string& rank : tensor.ranks) facts.shape.push_back(size_of_.at(rank));
    facts.first_level = -1;
    for (size_t i = 0; i < einsums_.size(); ++i) {
      const auto& [einsum, iteration, is_init] = einsums_[i];
      const bool writes = einsum->out.tensor == tensor.name;
      if (writes && is_init) ++facts.shape[CarriedPosition(*iteration, tensor.name)];
      if (writes) facts.is_input = false;
      if (!writes && !Reads(*einsum, tensor.name)) continue;
      if (facts.first_level < 0) facts.first_level = levels_[i].level;
      facts.last_level = std::max(facts.last_level, levels_[i].level);
    }
    facts.first_level = std::max(facts.first_level, 0);
    return facts;
  }

  void AddPasses(Analysis* analysis) const {
    size_t count = 1;
    for (const Level& each : levels_) count = std::max(count, static_cast<size_t>(each.level) + 1);
    analysis->per_pass.resize(count);
    for (const EinsumFacts& each : analysis->einsums) {
      Add(each.work, &analysis->per_pass[each.level].work);
    }
    for (TensorFacts& facts : analysis->tensors) {
      const auto home = static_cast<size_t>(facts.tensor.home);
      if (facts.tensor.home == Home::kTile) {
        if (facts.is_input) continue;
        const int begin = facts.first_level + (facts.replaces.empty() ? 0 : 1);
        for (int level = begin; level <= facts.last_level; ++level) {
          analysis->per_pass[level].footprint_bytes += facts.live_bytes;
        }
        continue;
      }
      for (size_t level = 0; level < count; ++level) {
        Traffic& traffic = analysis->per_pass[level].traffic;
        const double loads = LoadsIn(static_cast<int>(level), facts);
        traffic.loads[home] += loads;
        analysis->traffic.loads[home] += loads;
        facts.loads += loads;
      }
      if (facts.is_input) continue;
      facts.stores = VolumeOf(facts) * facts.tensor.bytes_per_value;
      analysis->per_pass[WrittenIn(facts)].traffic.stores[home] += facts.stores;
      analysis->traffic.stores[home] += facts.stores;
    }
    for (const PassFacts& each : analysis->per_pass) {
      analysis->footprint_bytes = std::max(analysis->footprint_bytes, each.footprint_bytes);
    }
  }

  static double VolumeOf(const TensorFacts& facts) {
    double volume = 1;
    for (const int64_t size : facts.shape) volume *= static_cast<double>(size);
    return volume;
  }

  size_t WrittenIn(const TensorFacts& facts) const {
    int level = 0;
    for (size_t i = 0; i < einsums_.size(); ++i) {
      if (einsums_[i].einsum->out.tensor == facts.tensor.name) {
        level = std::max(level, levels_[i].level);
      }
    }
    return static_cast<size_t>(level);
  }

  // Returns the bytes of the tensor that the einsums of a pass read, each of them once.
  double LoadsIn(int level, const TensorFacts& facts) const {
    double values = 0;
    for (size_t i = 0; i < einsums_.size(); ++i) {
      if (levels_[i].level != level) continue;
      for (const Access& access : einsums_[i].einsum->in) {
        if (access.tensor != facts.tensor.name) continue;
        std::vector<std::string> ranks;
        for (const Index& index : access.indices) {
          for (const Index::Term& term : index.terms) {
            if (std::ranges::find(ranks, term.rank) == ranks.end()) ranks.push_back(term.rank);
          }
        }
        values = std::max(values, std::min(PlacesOf(ranks, size_of_), VolumeOf(facts)));
      }
    }
    return values * facts.tensor.bytes_per_value;
  }

  const Cascade& cascade_;
  const Sizes& sizes_;
  const std::vector<PlacedEinsum> einsums_;
  const std::vector<Tensor> tensors_;
  Sizes size_of_;  // each rank
  std::vector<Level> levels_;
};

}  // namespace

int Passes(const Cascade& cascade, std::string_view rank_or_symbol) {
  return PassesOf(LevelsOf(cascade, FamilyOf(cascade, rank_or_symbol)));
}

std::vector<Hoist> Hoists(const Cascade& cascade) {
  std::map<std::string, const Einsum*> writers;
  for (const PlacedEinsum& each : AllEinsums(cascade)) {
    if (!each.is_init) writers[each.einsum->out.tensor] = each.einsum;
  }
  std::vector<Hoist> hoists;
  for (const PlacedEinsum& reader : AllEinsums(cascade)) {
    for (const Access& access : reader.einsum->in) {
      const auto writer = writers.find(access.tensor);
      if (writer == writers.end()) continue;
      absl::flat_hash_set<std::string> known;
      for (const Reduction& each : writer->second->reduce) {
        known.merge(FamilyOf(cascade, each.rank));
      }
      for (const Index& index : access.indices) {
        for (const Index::Term& term : index.terms) known.insert(term.rank);
      }
      std::vector<std::string> ranks = RanksOf(*reader.einsum);
      std::erase_if(ranks, [&](const std::string& rank) {
        return known.contains(rank) ||
               (reader.iteration != nullptr && rank == reader.iteration->rank);
      });
      if (ranks.empty()) continue;
      hoists.push_back({access.tensor, reader.einsum->out.tensor, std::move(ranks)});
    }
  }
  return hoists;
}

absl::StatusOr<Analysis> Analyze(const Cascade& cascade, const Sizes& sizes,
                                 std::string_view stream) {
  SLUICE_RETURN_IF_ERROR(Check(cascade));
  SLUICE_ASSIGN_OR_RETURN(const Cascade carried, CarryConditions(cascade));
  return Analyzer(carried, sizes).Run(stream);
}

}  // namespace sluice::einsum
