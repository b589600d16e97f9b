// Compares top-k of one row with std::partial_sort over the same values with their indices,
// alternating on one thread. Arguments: order of the values (0 random, 1 ascending, 2 descending),
// n, k. Runs with the best profile of the machine.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/sample.h"
#include "loadtest/bench/kernels/roofline.h"

namespace sluice::kernels {
namespace {

constexpr int kTopKRounds = 101;

enum Order : int64_t { kRandom, kAscending, kDescending };

std::vector<float> MakeValues(int64_t order, int64_t n) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  if (order != kRandom) std::sort(values.begin(), values.end());
  if (order == kDescending) std::reverse(values.begin(), values.end());
  return values;
}

void BM_TopK(benchmark::State& state) {
  ThreadPool pool(1);
  const Context context = {BestProfile(), &pool};
  const int64_t n = state.range(1), k = state.range(2);
  const std::vector<float> x = MakeValues(state.range(0), n);
  std::vector<float> values(static_cast<size_t>(k)), copy(x.size());
  std::vector<int32_t> ids(static_cast<size_t>(k)), order(x.size());
  std::vector<uint64_t> scratch(static_cast<size_t>(TopKScratch(n, k)));

  Series ours, of_values, of_indices;
  for (auto _ : state) {
    Measure(context, ours, [&] {
      TopK(context.profile, x.data(), n, k, values.data(), ids.data(), scratch.data());
    });
    Measure(context, of_values, [&] {  // without indices, the cheapest form
      std::copy(x.begin(), x.end(), copy.begin());
      std::partial_sort(copy.begin(), copy.begin() + k, copy.end(), std::greater<>());
    });
    Measure(context, of_indices, [&] {
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
        return x[a] > x[b] || (x[a] == x[b] && a < b);
      });
    });
  }
  state.counters["top_k_us"] = 1e6 * ours.Median();
  state.counters["values_over_top_k"] = of_values.Median() / ours.Median();
  state.counters["indices_over_top_k"] = of_indices.Median() / ours.Median();
  state.SetLabel(std::string(ProfileName(context.profile)));
}
BENCHMARK(BM_TopK)
    ->Iterations(kTopKRounds)
    ->ArgNames({"order", "n", "k"})
    ->ArgsProduct({{kRandom, kAscending, kDescending}, {32768}, {50}});

}  // namespace
}  // namespace sluice::kernels
