// Times attention with the best profile of the machine and head size 64. Decode has one query row
// per sequence over long contexts that exceed the caches, whose keys and values are read once.
// Prefill has whole causal sequences, alternating without and with XSA.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/memory.h"
#include "loadtest/bench/kernels/roofline.h"

namespace sluice::kernels {
namespace {

constexpr int32_t kAttentionHeadDim = 64;
constexpr int kAttentionRounds = 25;

struct Shape {
  int32_t sequences, context, first_position, q_heads, kv_heads;

  int32_t rows_each() const { return context - first_position; }
  int64_t rows() const { return int64_t{sequences} * rows_each(); }
  size_t kv_floats() const {
    return static_cast<size_t>(int64_t{sequences} * context * kv_heads * kAttentionHeadDim);
  }
};

// Memory as the engine allocates it: aligned, and in huge pages if the system grants them.
class Floats {
 public:
  explicit Floats(size_t count)
      : size_(count),
        data_(static_cast<float*>(AllocateMemory(static_cast<int64_t>(count * sizeof(float))))) {}
  Floats(std::mt19937_64& random, size_t count) : Floats(count) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t i = 0; i < count; ++i) data_.get()[i] = uniform(random);
  }

  size_t size() const { return size_; }
  float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };

  size_t size_;
  std::unique_ptr<float, Free> data_;
};

// Random queries, keys and values of a shape, and the cost of computing their attention.
class Attending {
 public:
  Attending(const Context& context, const Shape& shape)
      : context_(context),
        shape_(shape),
        q_(random_, static_cast<size_t>(shape.rows() * shape.q_heads * kAttentionHeadDim)),
        k_(random_, shape.kv_floats()),
        v_(random_, shape.kv_floats()),
        out_(q_.size()),
        scratch_(
            static_cast<size_t>(AttentionScratchFloats({}, {.q_heads = shape.q_heads,
                                                            .kv_heads = shape.kv_heads,
                                                            .head_dim = kAttentionHeadDim,
                                                            .max_context = shape.context,
                                                            .threads = context.pool->threads()}))),
        rows_(static_cast<size_t>(shape.rows())) {
    const int32_t pages_each = shape.context / kPageTokens;
    pages_.resize(static_cast<size_t>(shape.sequences * pages_each));
    std::iota(rows_.begin(), rows_.end(), 0);
    std::iota(pages_.begin(), pages_.end(), 0);
    sequences_.reserve(static_cast<size_t>(shape.sequences));
    for (int32_t i = 0; i < shape.sequences; ++i) {
      sequences_.push_back({shape.first_position, shape.rows_each(),
                            rows_.data() + i * shape.rows_each(), pages_.data() + i * pages_each});
    }
  }

  void Run(XsaForm xsa) {
    const AttentionArgs args = {.q = q_.data(),
                                .out = out_.data(),
                                .q_heads = shape_.q_heads,
                                .scale = 0.125f,
                                .causal = true,
                                .xsa = xsa,
                                .xsa_eps = 1e-6f,
                                .xsa_gate = nullptr,
                                .cos_sim = nullptr,
                                .proj_frac = nullptr};
    const KvLayer kv = {k_.data(), v_.data(), shape_.kv_heads, kAttentionHeadDim};
    Attention(context_, args, kv, sequences_, shape_.context, scratch_.data());
  }

  // Returns the floating-point operations of scores and sums over the visible keys.
  double Flops() const {
    const double keys = static_cast<double>(shape_.rows()) *
                        (static_cast<double>(shape_.first_position + shape_.context + 1) / 2);
    return 4.0 * shape_.q_heads * kAttentionHeadDim * keys;
  }
  // Returns the bytes of queries, keys, values and outputs, each counted once.
  double Bytes() const {
    return sizeof(float) * static_cast<double>(q_.size() + out_.size() + k_.size() + v_.size());
  }

 private:
  std::mt19937_64 random_{1};
  const Context context_;
  const Shape shape_;
  Floats q_, k_, v_, out_, scratch_;
  std::vector<int32_t> rows_, pages_;
  std::vector<AttentionSequence> sequences_;
};

void Describe(benchmark::State& state, const Context& context, const Attending& attending) {
  state.counters["MB"] = attending.Bytes() / 1e6;
  state.counters["MFLOP"] = attending.Flops() / 1e6;
  state.SetLabel(std::string(ProfileName(context.profile)));
}

Shape ShapeOf(const benchmark::State& state) {
  return {.sequences = static_cast<int32_t>(state.range(1)),
          .context = static_cast<int32_t>(state.range(2)),
          .first_position = 0,
          .q_heads = static_cast<int32_t>(state.range(3)),
          .kv_heads = static_cast<int32_t>(state.range(4))};
}

void BM_Decode(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Context context = {BestProfile(), &pool};
  Shape shape = ShapeOf(state);
  shape.first_position = shape.context - 1;
  Attending attending(context, shape);
  Roofline roofline(context);
  Series times;
  for (auto _ : state) {
    Measure(context, times, [&] { attending.Run(XsaForm::kOff); });
    roofline.Probe();
  }
  roofline.Report(state);
  roofline.Report(state, "decode", times, attending.Flops(), attending.Bytes());
  Describe(state, context, attending);
}

void BM_Prefill(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Context context = {BestProfile(), &pool};
  Attending attending(context, ShapeOf(state));
  Roofline roofline(context);
  Series plain, xsa;
  for (auto _ : state) {
    Measure(context, plain, [&] { attending.Run(XsaForm::kOff); });
    Measure(context, xsa, [&] { attending.Run(XsaForm::kNorm); });
    roofline.Probe();
  }
  roofline.Report(state);
  roofline.Report(state, "plain", plain, attending.Flops(), attending.Bytes());
  roofline.Report(state, "xsa", xsa, attending.Flops(), attending.Bytes());
  state.counters["xsa_over_plain"] = xsa.Median() / plain.Median();
  Describe(state, context, attending);
}

#define SLUICE_ATTENTION_BENCH(function) \
  BENCHMARK(function)                    \
      ->Iterations(kAttentionRounds)     \
      ->ArgNames({"threads", "sequences", "context", "q_heads", "kv_heads"})

SLUICE_ATTENTION_BENCH(BM_Decode)
    ->ArgsProduct({{1, 2}, {16}, {4096}, {8, 2}, {2}})
    ->ArgsProduct({{1, 2}, {1}, {65536}, {8}, {2}})
    ->ArgsProduct({{1, 2}, {1}, {4096}, {8}, {2}})
    ->ArgsProduct({{2}, {1}, {32768, 131072}, {8}, {1, 2, 4}});
SLUICE_ATTENTION_BENCH(BM_Prefill)
    ->ArgsProduct({{1, 2}, {16}, {64, 256}, {8}, {2}})
    ->ArgsProduct({{1}, {4}, {1024}, {8}, {2}});

}  // namespace
}  // namespace sluice::kernels
