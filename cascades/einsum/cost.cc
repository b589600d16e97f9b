#include "cascades/einsum/cost.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sluice::einsum {
namespace {

using MemoryLevel = DeviceDescription::Level;

constexpr char kMultiplyAdds[] = "multiply-adds";
constexpr char kExponentials[] = "exponentials";

// Returns whether workers share the places of a result's rank: rows, columns, sequences, heads and
// chunks of keys. Attention computes the query heads of a KV head together, and all features of a
// head.
bool IsDivided(const Rank& rank) {
  constexpr std::array<std::string_view, 2> kWhole = {"group", "head_dim"};
  return std::ranges::find(kWhole, rank.size.symbol) == kWhole.end();
}

const Rank& RankNamed(const Cascade& cascade, const std::string& name) {
  return *std::ranges::find(cascade.ranks, name, &Rank::name);
}

// Returns the nearest level that holds the bytes.
const MemoryLevel& Holding(const DeviceDescription& device, double bytes, bool shared) {
  for (const MemoryLevel& level : device.levels) {
    if (bytes <= level.bytes && (level.shared || !shared)) return level;
  }
  return device.levels.back();
}

MemoryLevel& Holding(DeviceDescription& device, double bytes, bool shared) {
  return const_cast<MemoryLevel&>(Holding(std::as_const(device), bytes, shared));
}

double SecondsToMove(const MemoryLevel& level, double bytes, double workers) {
  if (!level.shared) return bytes / (level.bytes_per_second * workers);
  const double drawn = level.worker_bytes_per_second * workers;
  return bytes / (drawn > 0 ? std::min(drawn, level.bytes_per_second) : level.bytes_per_second);
}

// Whether an einsum reads the tensor.
bool IsRead(const Cascade& cascade, const std::string& tensor) {
  return std::ranges::any_of(AllEinsums(cascade), [&](const PlacedEinsum& placed) {
    return std::ranges::find(placed.einsum->in, tensor, &Access::tensor) != placed.einsum->in.end();
  });
}

// Returns whether the tensor holds keys or values in the KV cache, or is another input along the
// stream, such as keys and values that stay activations.
bool HoldsKeys(const Cascade& cascade, const Analysis& analysis, const TensorFacts& facts) {
  if (facts.tensor.home == Home::kKv) return true;
  if (facts.tensor.home != Home::kArena || !facts.is_input) return false;
  return std::ranges::any_of(facts.tensor.ranks, [&](const std::string& name) {
    return name == analysis.stream || RankNamed(cascade, name).size.symbol == analysis.stream;
  });
}

// Returns how many rows a work item computes together, so that it reads keys and values once for
// all of them: the places of the ranks that its results have and the keys and values lack.
double RowsOfItem(const Cascade& cascade, const Analysis& analysis) {
  std::set<std::string> other;
  for (const PlacedEinsum& placed : AllEinsums(cascade)) {
    for (const Access& access : placed.einsum->in) {
      const auto facts = std::ranges::find(
          analysis.tensors, access.tensor,
          [](const TensorFacts& each) -> const std::string& { return each.tensor.name; });
      if (facts == analysis.tensors.end() || !HoldsKeys(cascade, analysis, *facts)) continue;
      for (const Index& index : access.indices) {
        for (const Index::Term& term : index.terms) other.insert(term.rank);
      }
    }
  }
  if (other.empty()) return 1;
  for (const TensorFacts& facts : analysis.tensors) {
    other.insert(facts.live_ranks.begin(), facts.live_ranks.end());
  }
  double rows = 1;
  for (const TensorFacts& facts : analysis.tensors) {
    if (facts.tensor.home != Home::kTile) continue;
    for (size_t i = 0; i < facts.shape.size(); ++i) {
      const std::string& rank = facts.tensor.ranks[i];
      if (!IsDivided(RankNamed(cascade, rank)) && other.insert(rank).second) rows *= facts.shape[i];
    }
  }
  return rows;
}

// Returns the bytes that the pass moves for data that work items keep from one pass to another.
double KeptBytes(const Analysis& analysis, int pass) {
  double bytes = 0;
  for (const TensorFacts& facts : analysis.tensors) {
    if (facts.tensor.home != Home::kTile || facts.first_level == facts.last_level) continue;
    if (pass != facts.first_level && pass != facts.last_level) continue;
    double points = 1;
    for (const int64_t size : facts.shape) points *= size;
    bytes += points * facts.tensor.bytes_per_value;
  }
  return bytes;
}

using Rate = double DeviceDescription::*;

// Returns the rate of the einsum's operations, depending on the bytes of a value of its weights.
Rate FlopsRate(const Cascade& cascade, const Einsum& einsum, const DeviceDescription& device) {
  for (const Access& access : einsum.in) {
    const auto tensor = std::ranges::find(cascade.tensors, access.tensor, &Tensor::name);
    if (tensor == cascade.tensors.end() || tensor->home != Home::kWeight) continue;
    const Rate rate = tensor->bytes_per_value < 2    ? &DeviceDescription::int8_flops_per_second
                      : tensor->bytes_per_value == 2 ? &DeviceDescription::bf16_flops_per_second
                                                     : nullptr;
    if (rate != nullptr && device.*rate > 0) return rate;
  }
  return &DeviceDescription::flops_per_second;
}

// Returns the time of some passes' operations on one worker.
double FlopsSeconds(const Cascade& cascade, const Analysis& analysis,
                    const DeviceDescription& device, int first_pass, int last_pass) {
  const std::vector<PlacedEinsum> einsums = AllEinsums(cascade);
  double seconds = 0;
  for (size_t i = 0; i < einsums.size(); ++i) {
    const EinsumFacts& facts = analysis.einsums[i];
    if (facts.level < first_pass || facts.level > last_pass) continue;
    seconds += facts.work.flops / (device.*FlopsRate(cascade, *einsums[i].einsum, device));
  }
  return seconds;
}

// The bytes of all passes.
struct MovedBytes {
  double resident;  // weights and KV pages
  double arena;
};

MovedBytes MovedBytesOf(const Analysis& analysis) {
  const auto moved = [&](Home home) {
    return analysis.traffic.LoadsOf(home) + analysis.traffic.StoresOf(home);
  };
  return {moved(Home::kWeight) + moved(Home::kKv), moved(Home::kArena)};
}

PassEstimate EstimatePass(const Cascade& cascade, const Analysis& analysis,
                          const DeviceDescription& device, double resident_bytes, int pass,
                          double rows, double workers) {
  const PassFacts& facts = analysis.per_pass[pass];
  const auto moved = [&](Home home) {
    return facts.traffic.LoadsOf(home) + facts.traffic.StoresOf(home);
  };
  const double resident = moved(Home::kWeight) + moved(Home::kKv), arena = moved(Home::kArena);
  const MemoryLevel& far = Holding(device, std::max(resident_bytes, resident), true);
  const double footprint = facts.footprint_bytes * rows;
  const MemoryLevel& own = Holding(device, footprint, false);
  // Data that stays in the nearest level is not moved.
  const double kept = footprint <= device.levels[0].bytes ? 0 : KeptBytes(analysis, pass);
  PassEstimate estimate;
  estimate.level = own.name;
  estimate.footprint_bytes = footprint;
  const double keeping = SecondsToMove(own, kept, workers);
  const double sharing = SecondsToMove(far, resident, workers) +
                         SecondsToMove(Holding(device, arena, true), arena, workers);
  estimate.transfer_seconds = own.shared ? sharing + keeping : std::max(sharing, keeping);
  estimate.flops_seconds = FlopsSeconds(cascade, analysis, device, pass, pass) / workers;
  estimate.exponentials_seconds =
      facts.work.exponentials / (device.exponentials_per_second * workers);
  return estimate;
}

}  // namespace

double PassEstimate::seconds() const {
  return std::max({transfer_seconds, flops_seconds, exponentials_seconds});
}

Roofline RooflineOf(const Cascade& cascade, const Analysis& analysis,
                    const DeviceDescription& device, double resident_bytes) {
  const auto [resident, arena] = MovedBytesOf(analysis);
  const MemoryLevel& far = Holding(device, std::max(resident_bytes, resident), true);
  const MemoryLevel& near = Holding(device, arena, true);
  const double workers = device.workers;
  const double moving = SecondsToMove(far, resident, workers) + SecondsToMove(near, arena, workers);
  const double flops = FlopsSeconds(cascade, analysis, device, 0, analysis.passes) / workers;
  const double exponentials =
      analysis.work.exponentials / (device.exponentials_per_second * workers);
  Roofline roofline = {resident + arena, moving, resident > 0 ? far.name : near.name};
  if (flops > roofline.seconds) roofline = {roofline.bytes, flops, kMultiplyAdds};
  if (exponentials > roofline.seconds) roofline = {roofline.bytes, exponentials, kExponentials};
  return roofline;
}

std::vector<RaisedRate> RaiseCeilings(const Cascade& cascade, const Analysis& analysis,
                                      double resident_bytes, double seconds,
                                      DeviceDescription* device) {
  SLUICE_CHECK(seconds > 0);
  constexpr double kRounding = 1e-12;
  std::vector<RaisedRate> raised;
  const auto add = [&](const std::string& name, double factor) {
    const auto known = std::ranges::find(raised, name, &RaisedRate::name);
    if (known == raised.end()) {
      raised.push_back({name, factor});
    } else {
      known->factor *= factor;
    }
  };
  while (true) {
    const Roofline roofline = RooflineOf(cascade, analysis, *device, resident_bytes);
    if (roofline.seconds <= seconds * (1 + kRounding)) return raised;
    const double factor = roofline.seconds / seconds;
    if (roofline.bound == kMultiplyAdds) {
      std::set<double*> rates;
      for (const PlacedEinsum& each : AllEinsums(cascade)) {
        rates.insert(&(device->*FlopsRate(cascade, *each.einsum, *device)));
      }
      for (double* const rate : rates) *rate *= factor;
      add(kMultiplyAdds, factor);
    } else if (roofline.bound == kExponentials) {
      device->exponentials_per_second *= factor;
      add(kExponentials, factor);
    } else {
      const MovedBytes moved = MovedBytesOf(analysis);
      std::set<MemoryLevel*> levels;
      if (moved.resident > 0) {
        levels.insert(&Holding(*device, std::max(resident_bytes, moved.resident), true));
      }
      if (moved.arena > 0) levels.insert(&Holding(*device, moved.arena, true));
      for (MemoryLevel* const level : levels) {
        level->bytes_per_second *= factor;
        level->worker_bytes_per_second *= factor;
        add(level->name, factor);
      }
    }
  }
}

absl::StatusOr<CostEstimate> Estimate(const Cascade& cascade, const Sizes& sizes,
                                      const DeviceDescription& device,
                                      const Circumstances& circumstances) {
  SLUICE_ASSIGN_OR_RETURN(const Analysis analysis, Analyze(cascade, sizes));
  return Estimate(cascade, analysis, device, circumstances);
}

CostEstimate Estimate(const Cascade& cascade, const Analysis& analysis,
                      const DeviceDescription& device, const Circumstances& circumstances) {
  CostEstimate estimate;
  estimate.work_items = 1;
  estimate.launches = 1;
  for (const TensorFacts& facts : analysis.tensors) {
    if (facts.is_input || facts.tensor.home != Home::kArena) continue;
    int64_t items = 1;
    for (size_t i = 0; i < facts.shape.size(); ++i) {
      if (IsDivided(RankNamed(cascade, facts.tensor.ranks[i]))) items *= facts.shape[i];
    }
    estimate.work_items = std::max(estimate.work_items, items);
    if (IsRead(cascade, facts.tensor.name)) estimate.launches = 2;
  }
  estimate.work_items = std::min(estimate.work_items, circumstances.most_work_items);
  const int64_t rounds = CeilDiv(estimate.work_items, device.workers);
  estimate.usable_workers = static_cast<double>(estimate.work_items) / rounds;
  const double rows = RowsOfItem(cascade, analysis);
  estimate.seconds = estimate.launches * device.launch_seconds;
  for (int pass = 0; pass < std::ssize(analysis.per_pass); ++pass) {
    estimate.passes.push_back(EstimatePass(cascade, analysis, device, circumstances.resident_bytes,
                                           pass, rows, estimate.usable_workers));
    estimate.seconds += estimate.passes.back().seconds();
  }
  return estimate;
}

}  // namespace sluice::einsum
