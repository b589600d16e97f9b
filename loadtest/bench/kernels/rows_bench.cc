// Times row-wise operations with the machine's best profile: norm, rotation with the write to the
// KV pages, activation, and two steps that the host computes for the vectors of tokens: a dense
// layer of states, and MaxSim. Arguments: threads, rows, row width.
#include <benchmark/benchmark.h>

#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/max_sim.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/state_products.h"
#include "loadtest/bench/kernels/roofline.h"

namespace sluice::kernels {
namespace {

constexpr int kRowRounds = 25;
constexpr int32_t kRowHeadDim = 64, kQHeads = 8, kKvHeads = 2;
// Of answerai-colbert-small: the values of a vector, and the vectors of a query.
constexpr int64_t kVectorWidth = 96, kQueryVectors = 32;

// Times `run`, which reads or writes `floats` values once and performs `operations` on each.
template <typename Run>
void Report(benchmark::State& state, const char* name, double floats, double operations, Run run) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Context context = {BestProfile(), &pool};
  Roofline roofline(context);
  Series times;
  for (auto _ : state) {
    Measure(context, times, [&] { run(context); });
    roofline.Probe();
  }
  const double bytes = sizeof(float) * floats, flops = operations * floats;
  roofline.Report(state);
  roofline.Report(state, name, times, flops, bytes);
  state.counters["MB"] = bytes / 1e6;
  state.counters["MFLOP"] = flops / 1e6;
  state.SetLabel(std::string(ProfileName(context.profile)));
}

void BM_RmsNorm(benchmark::State& state) {
  const int64_t rows = state.range(1), dim = state.range(2);
  const std::vector<float> x(static_cast<size_t>(rows * dim), 0.5f), weight(dim, 1.0f);
  std::vector<float> out(x.size());
  Report(state, "norm", 2.0 * static_cast<double>(x.size()), 2, [&](const Context& context) {
    RmsNorm(context, x.data(), weight.data(), 1e-5f, rows, dim, out.data());
  });
}

void BM_Silu(benchmark::State& state) {
  const int64_t rows = state.range(1), dim = state.range(2);
  std::vector<float> gate(static_cast<size_t>(rows * dim), 0.5f);
  const std::vector<float> up(gate.size(), 0.5f);
  std::vector<float> out(gate.size());
  Report(state, "silu", 3.0 * static_cast<double>(up.size()), 5, [&](const Context& context) {
    Activate(context, Activation::kSilu, gate.data(), up.data(), rows, dim, out.data());
  });
}

void BM_Gelu(benchmark::State& state) {
  const int64_t rows = state.range(1), dim = state.range(2);
  const std::vector<float> x(static_cast<size_t>(rows * dim), 0.5f);
  std::vector<float> out(x.size());
  Report(state, "gelu", 2.0 * static_cast<double>(x.size()), 16, [&](const Context& context) {
    Activate(context, Activation::kGelu, x.data(), nullptr, rows, dim, out.data());
  });
}

void BM_RopeAndStore(benchmark::State& state) {
  const int64_t rows = state.range(1);
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<float> cos(static_cast<size_t>(rows * kRowHeadDim / 2), 0.8f);
  const std::vector<float> sin(cos.size(), 0.6f);
  std::vector<float> q(static_cast<size_t>(rows * kQHeads * kRowHeadDim), 0.5f);
  const std::vector<float> k(static_cast<size_t>(rows * kKvHeads * kRowHeadDim), 0.5f);
  const std::vector<float>& v = k;
  std::vector<float> keys(k.size()), values(v.size());
  const KvLayer kv = {keys.data(), values.data(), kKvHeads, kRowHeadDim};
  const RopeTable table = {cos.data(), sin.data(), kRowHeadDim};
  const double floats = 2.0 * static_cast<double>(q.size() + k.size() + v.size());
  Report(state, "rope", floats, 2, [&](const Context& context) {
    RopeAndStore(context, table, positions.data(), positions.data(), rows, kQHeads, q.data(),
                 k.data(), v.data(), kv);
  });
}

void BM_VectorLayer(benchmark::State& state) {
  const int64_t rows = state.range(1), dim = state.range(2);
  const std::vector<float> weights(static_cast<size_t>(kVectorWidth * dim), 0.5f);
  const std::vector<double> states(static_cast<size_t>(rows * dim), 0.5);
  std::vector<double> products(rows);
  const auto floats = static_cast<double>(weights.size() + 2 * states.size());
  const double flops = 2.0 * static_cast<double>(states.size()) * kVectorWidth;
  Report(state, "vector_layer", floats, flops / floats, [&](const Context& context) {
    for (int64_t row = 0; row < kVectorWidth; ++row) {
      const std::span<const float> of_row = std::span(weights).subspan(row * dim, dim);
      AddStateProducts(context.profile, of_row, states.data(), dim, products);
    }
  });
}

void BM_MaxSim(benchmark::State& state) {
  const int64_t rows = state.range(1), dim = state.range(2);
  const std::vector<float> query(static_cast<size_t>(kQueryVectors * dim), 0.1f);
  const std::vector<float> document(static_cast<size_t>(rows * dim), 0.1f);
  const MaxSimQuery packed(BestProfile(), query, dim);
  Report(state, "max_sim", static_cast<double>(document.size()), 2.0 * kQueryVectors,
         [&](const Context&) { benchmark::DoNotOptimize(packed.Score(document)); });
}

#define SLUICE_ROWS_BENCH(function) \
  BENCHMARK(function)->Iterations(kRowRounds)->ArgNames({"threads", "rows", "width"})

SLUICE_ROWS_BENCH(BM_RmsNorm)->ArgsProduct({{1}, {512}, {512}});
SLUICE_ROWS_BENCH(BM_Silu)->ArgsProduct({{1}, {512}, {1376}});
SLUICE_ROWS_BENCH(BM_Gelu)->ArgsProduct({{1}, {8, 1024}, {1536}});
SLUICE_ROWS_BENCH(BM_RopeAndStore)
    ->ArgsProduct({{1}, {512}, {(kQHeads + 2 * kKvHeads) * kRowHeadDim}});
SLUICE_ROWS_BENCH(BM_VectorLayer)->ArgsProduct({{1}, {1, 8}, {384}});
SLUICE_ROWS_BENCH(BM_MaxSim)->ArgsProduct({{1}, {8, 180}, {kVectorWidth}});

}  // namespace
}  // namespace sluice::kernels
