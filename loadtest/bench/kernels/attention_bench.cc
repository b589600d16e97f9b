// Times attention with the machine's best profile and head size 64. Decode has one query row per
// sequence. Most contexts are larger than the caches, so keys and values are read from memory once.
// Prefill has whole causal sequences. Prefill and BM_DecodeXsa alternate without and with XSA.
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
  KvType type = KvType::kF32;

  int32_t rows_each() const { return context - first_position; }
  int64_t rows() const { return int64_t{sequences} * rows_each(); }
  KvLayer layer() const { return {nullptr, nullptr, kv_heads, kAttentionHeadDim, type}; }
  int64_t pages() const { return int64_t{sequences} * context / kPageTokens; }
  // The number of floats that need as much memory as the keys, or the values.
  size_t kv_floats() const {
    return static_cast<size_t>(pages() * layer().page_bytes()) / sizeof(float);
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
        k_(shape.kv_floats()),
        v_(shape.kv_floats()),
        out_(q_.size()),
        scratch_(static_cast<size_t>(AttentionScratchFloats({}, {.q_heads = shape.q_heads,
                                                                 .kv_heads = shape.kv_heads,
                                                                 .head_dim = kAttentionHeadDim,
                                                                 .max_context = shape.context,
                                                                 .threads = context.pool->threads(),
                                                                 .kv_type = shape.type}))),
        rows_(static_cast<size_t>(shape.rows())) {
    const int32_t pages_each = shape.context / kPageTokens;
    pages_.resize(static_cast<size_t>(shape.sequences * pages_each));
    kv_ = shape.layer();
    kv_.k = k_.data();
    kv_.v = v_.data();
    FillPages();
    std::iota(rows_.begin(), rows_.end(), 0);
    std::iota(pages_.begin(), pages_.end(), 0);
    sequences_.reserve(static_cast<size_t>(shape.sequences));
    for (int32_t i = 0; i < shape.sequences; ++i) {
      sequences_.push_back({shape.first_position, shape.rows_each(),
                            rows_.data() + i * shape.rows_each(), pages_.data() + i * pages_each});
    }
  }

  void Run(XsaForm xsa) const {
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
    Attention(context_, args, kv_, sequences_, shape_.context, scratch_.data());
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
  void FillPages() {
    uint32_t state = 1;
    float values[kAttentionHeadDim];
    for (int64_t slot = 0; slot < shape_.pages() * kPageTokens; ++slot) {
      for (int32_t head = 0; head < shape_.kv_heads; ++head) {
        for (float& value : values) {
          state = state * 1664525u + 1013904223u;
          value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
        }
        StoreKey(kv_, slot, head, values);
        StoreValue(kv_, slot, head, values);
      }
    }
  }

  std::mt19937_64 random_{1};
  const Context context_;
  const Shape shape_;
  Floats q_, k_, v_, out_, scratch_;
  KvLayer kv_;
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

// Times decode over pages of f32, bf16 and int8, alternating.
void BM_DecodeByType(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Context context = {BestProfile(), &pool};
  Shape shape = ShapeOf(state);
  shape.first_position = shape.context - 1;
  const Attending f32(context, shape);
  shape.type = KvType::kBF16;
  const Attending bf16(context, shape);
  shape.type = KvType::kInt8;
  const Attending int8(context, shape);
  Roofline roofline(context);
  Series times[3];
  for (auto _ : state) {
    Measure(context, times[0], [&] { f32.Run(XsaForm::kOff); });
    Measure(context, times[1], [&] { bf16.Run(XsaForm::kOff); });
    Measure(context, times[2], [&] { int8.Run(XsaForm::kOff); });
    roofline.Probe();
  }
  roofline.Report(state);
  roofline.Report(state, "f32", times[0], f32.Flops(), f32.Bytes());
  roofline.Report(state, "bf16", times[1], bf16.Flops(), bf16.Bytes());
  roofline.Report(state, "int8", times[2], int8.Flops(), int8.Bytes());
  state.counters["f32_over_bf16"] = times[0].Median() / times[1].Median();
  state.counters["f32_over_int8"] = times[0].Median() / times[2].Median();
  Describe(state, context, f32);
}

// Times a shape without and with XSA, alternating.
void CompareXsa(benchmark::State& state, const Shape& shape) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Context context = {BestProfile(), &pool};
  Attending attending(context, shape);
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

void BM_Prefill(benchmark::State& state) { CompareXsa(state, ShapeOf(state)); }

// Two threads divide the keys of a sequence, and a row's sums are merged from several parts.
void BM_DecodeXsa(benchmark::State& state) {
  Shape shape = ShapeOf(state);
  shape.first_position = shape.context - 1;
  CompareXsa(state, shape);
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
SLUICE_ATTENTION_BENCH(BM_DecodeByType)
    ->ArgsProduct({{1, 2}, {16}, {4096}, {8, 2}, {2}})
    ->ArgsProduct({{1, 2}, {1}, {32768}, {8}, {2}})
    ->ArgsProduct({{1}, {8}, {512}, {12}, {12}})
    ->ArgsProduct({{1}, {64}, {512}, {12}, {12}})
    ->ArgsProduct({{1}, {8}, {2048, 8192}, {12, 4}, {4}})
    ->ArgsProduct({{1}, {8}, {2048, 8192}, {12}, {12}});
SLUICE_ATTENTION_BENCH(BM_Prefill)
    ->ArgsProduct({{1, 2}, {16}, {64, 256}, {8}, {2}})
    ->ArgsProduct({{1}, {4}, {1024}, {8}, {2}});
SLUICE_ATTENTION_BENCH(BM_DecodeXsa)->ArgsProduct({{2}, {1}, {1024, 4096}, {8, 32}, {1}});

}  // namespace
}  // namespace sluice::kernels
