#include "loadtest/simulate/oracle.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/review/ladder_benchmark.h"

namespace sluice::loadtest {
namespace {

// The relative steps. Each is repeated while it improves the result, up to a limit.
constexpr double kSteps[] = {0.16, 0.08, 0.04, 0.02, 0.01};
constexpr int kMostSweeps = 4;

class LadderSearch {
 public:
  LadderSearch(const Ladder& start, std::span<const Arrival> arrivals, const BatchOptions& options,
               const CostModel& law, const LadderLimits& limits)
      : arrivals_(arrivals), options_(options), law_(law), limits_(limits), best_(start) {
    efficiency_ = EfficiencyOf(start);
  }

  Ladder Run() {
    for (const double step : kSteps) {
      for (int sweep = 0; sweep < kMostSweeps && Sweep(step); ++sweep) {
      }
    }
    return best_;
  }

 private:
  double EfficiencyOf(const Ladder& ladder) const {
    return BenchmarkLadder(ladder, arrivals_, options_, law_).bucket_fill;
  }

  // Returns whether any of the moves improved the result.
  bool Sweep(double step) {
    bool helped = false;
    for (size_t i = 0; i + 1 < best_.buckets().size(); ++i) {
      helped |= Move(i, 1 + step) || Move(i, 1 / (1 + step));
    }
    return helped;
  }

  bool Move(size_t index, double factor) {
    std::vector<int32_t> capacities;
    for (const Bucket& bucket : best_.buckets()) capacities.push_back(bucket.tokens);
    capacities[index] = static_cast<int32_t>(std::lround(capacities[index] * factor));
    if (capacities[index] < 1) return false;
    Ladder moved = MakePackedLadder(std::move(capacities), limits_);
    if (moved.buckets().size() != best_.buckets().size()) return false;
    const double efficiency = EfficiencyOf(moved);
    if (efficiency <= efficiency_) return false;
    efficiency_ = efficiency;
    best_ = std::move(moved);
    return true;
  }

  const std::span<const Arrival> arrivals_;
  const BatchOptions& options_;
  const CostModel& law_;
  const LadderLimits& limits_;
  Ladder best_;
  double efficiency_ = 0;
};

}  // namespace

Ladder SearchLadder(const Ladder& start, std::span<const Arrival> arrivals,
                    const BatchOptions& batch_options, const CostModel& law,
                    const LadderLimits& limits) {
  return LadderSearch(start, arrivals, batch_options, law, limits).Run();
}

}  // namespace sluice::loadtest
