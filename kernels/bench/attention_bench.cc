// Attention of decode steps: one query row a sequence over long contexts, whose keys and values are
// read once. Arguments: threads, sequences, context, query heads, KV heads. Runs with the best
// profile of the machine. KV pages beyond the caches, head size 64.
#include <benchmark/benchmark.h>

#include <numeric>
#include <string>
#include <vector>

#include "kernels/bench/roofline.h"
#include "kernels/cpu/attention.h"

namespace sluice::kernels {
namespace {

constexpr int32_t kHeadDim = 64;
constexpr int kRounds = 25;

struct Decode {
  std::vector<int32_t> rows, pages;
  std::vector<AttentionSequence> sequences;

  Decode(int32_t count, int32_t tokens) : rows(count), pages(count * (tokens / kPageTokens)) {
    std::iota(rows.begin(), rows.end(), 0);
    std::iota(pages.begin(), pages.end(), 0);
    sequences.reserve(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) {
      sequences.push_back({tokens - 1, 1, &rows[i], &pages[i * (tokens / kPageTokens)]});
    }
  }
};

void BM_Decode(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Context context = {BestProfile(), &pool};
  const int32_t count = static_cast<int32_t>(state.range(1));
  const int32_t tokens = static_cast<int32_t>(state.range(2));
  const int32_t q_heads = static_cast<int32_t>(state.range(3));
  const int32_t kv_heads = static_cast<int32_t>(state.range(4));
  const Decode decode(count, tokens);
  const size_t kv_floats = static_cast<size_t>(int64_t{count} * tokens * kv_heads * kHeadDim);
  std::vector<float> k(kv_floats, 0.01f), v(kv_floats, 0.02f);
  const KvLayer kv = {k.data(), v.data(), kv_heads, kHeadDim};
  std::vector<float> q(static_cast<size_t>(count * q_heads * kHeadDim), 0.1f), out(q.size());
  std::vector<float> scratch(
      static_cast<size_t>(pool.threads() * AttentionScratchFloats(tokens, kHeadDim)));
  const AttentionArgs args = {q.data(),      out.data(), q_heads, 0.125f,  true,
                              XsaForm::kOff, 1e-6f,      nullptr, nullptr, nullptr};

  Roofline roofline(context);
  Series times;
  for (auto _ : state) {
    Measure(context, times,
            [&] { Attention(context, args, kv, decode.sequences, tokens, scratch.data()); });
    roofline.Probe();
  }
  const double flops = 4.0 * q_heads * kHeadDim * static_cast<double>(int64_t{count} * tokens);
  const double bytes = 2.0 * sizeof(float) * static_cast<double>(kv_floats);
  roofline.Report(state);
  roofline.Report(state, "decode", times, flops, bytes);
  state.counters["MB"] = bytes / 1e6;
  state.counters["MFLOP"] = flops / 1e6;
  state.SetLabel(std::string(ProfileName(context.profile)));
}
BENCHMARK(BM_Decode)
    ->Iterations(kRounds)
    ->ArgNames({"threads", "sequences", "context", "q_heads", "kv_heads"})
    ->ArgsProduct({{1, 2}, {16}, {4096}, {8, 2}, {2}})
    ->ArgsProduct({{1, 2}, {1}, {65536}, {8}, {2}})
    ->ArgsProduct({{1, 2}, {1}, {4096}, {8}, {2}});

}  // namespace
}  // namespace sluice::kernels
