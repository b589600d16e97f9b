// Times FitCapacities over histograms of n distinct sizes. The counter is the time per n and per
// bucket; it should grow as log n.
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "engine/review/fit.h"

namespace sluice {
namespace {

void BM_FitCapacities(benchmark::State& state) {
  const auto n = static_cast<int32_t>(state.range(0));
  const auto count = static_cast<int>(state.range(1));
  std::mt19937_64 random(1);
  std::vector<TokenWeight> sizes;
  for (int32_t i = 1; i <= n; ++i) {
    sizes.push_back({.tokens = i, .weight = 1.0 + static_cast<double>(random() % 1000)});
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(FitCapacities(
        sizes, n, count, [](int32_t tokens) { return 60.0 + 0.04 * tokens; },
        [](int32_t) { return 0.0; }));
  }
  state.SetComplexityN(n);
  state.counters["per_n_and_bucket"] = benchmark::Counter(
      static_cast<double>(n) * count,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK(BM_FitCapacities)
    ->ArgNames({"n", "count"})
    ->ArgsProduct({benchmark::CreateRange(1 << 10, 1 << 18, 4), {16}})
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oNLogN);
BENCHMARK(BM_FitCapacities)
    ->ArgNames({"n", "count"})
    ->ArgsProduct({{1 << 14}, {4, 16, 64, 256}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice
