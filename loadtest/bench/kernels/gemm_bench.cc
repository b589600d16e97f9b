// Times four operations, alternating: GEMM over bf16 panels, over f32 panels of the same values,
// and over int8 panels with rows already quantised, and the quantisation of the rows. Arguments:
// profile, threads, rows of each group, k, n, matrices (one group for each). One matrix stands for
// a dense layer. Matrices that exceed the caches stand for a position-wise projection or a decode
// step through many layers.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/memory.h"
#include "loadtest/bench/kernels/roofline.h"

namespace sluice::kernels {
namespace {

constexpr int kGemmRounds = 25;

PackedWeights Pack(const Context& context, DType dtype, int64_t matrices, int64_t k, int64_t n) {
  const size_t count = static_cast<size_t>(matrices * k * n);
  const std::vector<uint16_t> halves(dtype == DType::kBF16 ? count : 0, 0x3C23);  // 0.00995
  const std::vector<float> floats(dtype == DType::kF32 ? count : 0, 0.00995f);
  const void* data =
      dtype == DType::kBF16 ? static_cast<const void*>(halves.data()) : floats.data();
  return PackedWeights::Pack(context, {data, dtype, matrices, k, n, false});
}

PackedWeights PackInt8(const Context& context, int64_t matrices, int64_t k, int64_t n) {
  const std::vector<int8_t> values(static_cast<size_t>(matrices * k * n), 3);
  const std::vector<float> scales(static_cast<size_t>(matrices * n), 0.003f);
  return PackedWeights::PackInt8(context,
                                 {values.data(), DType::kI8, matrices, k, n, false, scales.data()});
}

// Groups of 64, as the engine quantises by default.
PackedWeights PackInt4(const Context& context, int64_t matrices, int64_t k, int64_t n) {
  const std::vector<float> values(static_cast<size_t>(matrices * k * n), 0.00995f);
  return PackedWeights::PackInt4(context, {values.data(), DType::kF32, matrices, k, n, false}, 64);
}

void BM_Gemm(benchmark::State& state) {
  const Profile profile = kProfiles[state.range(0)];
  const int32_t rows = static_cast<int32_t>(state.range(2));
  const int64_t k = state.range(3), n = state.range(4), matrices = state.range(5);
  if (!ProfileSupported(profile)) {
    state.SkipWithError("this machine lacks the instructions");
    return;
  }
  ThreadPool pool(static_cast<int>(state.range(1)));
  const Context context = {profile, &pool};
  const PackedWeights bf16 = Pack(context, DType::kBF16, matrices, k, n);
  const PackedWeights f32 = Pack(context, DType::kF32, matrices, k, n);
  const PackedWeights int8 = PackInt8(context, matrices, k, n);
  const PackedWeights int4 = PackInt4(context, matrices, k, n);
  std::vector<RowGroup> groups;
  groups.reserve(static_cast<size_t>(matrices));
  for (int32_t i = 0; i < matrices; ++i) groups.push_back({i, i * rows, rows});
  const std::vector<float> x(static_cast<size_t>(matrices * rows * k), 0.5f);
  std::vector<float> out(static_cast<size_t>(matrices * rows * n));
  const GemmArgs args = {x.data(), k, nullptr, 0, out.data(), n, false};

  int64_t room[2];
  std::unique_ptr<std::byte, decltype(&std::free)> memory[2] = {{nullptr, &std::free},
                                                                {nullptr, &std::free}};
  GemmArgs quantized_args[2] = {args, args};  // by weights in int8, and in int4
  for (int i = 0; i < 2; ++i) {
    room[i] = QuantizedRows::Bytes(profile, matrices * rows, k, i == 1);
    memory[i].reset(static_cast<std::byte*>(AllocateMemory(room[i])));
    quantized_args[i].quantized =
        QuantizedRows(profile, matrices * rows, k, i == 1, memory[i].get());
    QuantizeRows(context, x.data(), k, matrices * rows, quantized_args[i].quantized);
  }
  const GemmArgs &int8_args = quantized_args[0], &int4_args = quantized_args[1];

  Roofline roofline(context), int8_roofline(context, Peak::kInt8);
  Series times_bf16, times_f32, times_int8, times_int4, times_quantize;
  for (auto _ : state) {
    Measure(context, times_bf16, [&] { GroupedGemm(context, bf16, groups, args); });
    Measure(context, times_f32, [&] { GroupedGemm(context, f32, groups, args); });
    Measure(context, times_int8, [&] { GroupedGemm(context, int8, groups, int8_args); });
    Measure(context, times_int4, [&] { GroupedGemm(context, int4, groups, int4_args); });
    Measure(context, times_quantize,
            [&] { QuantizeRows(context, x.data(), k, matrices * rows, int8_args.quantized); });
    roofline.Probe();
    int8_roofline.Probe();
  }
  const double flops = 2.0 * static_cast<double>(matrices * rows * k * n);
  const double bytes_int8 = static_cast<double>(room[0] + int8.bytes()) + 4.0 * out.size();
  const double activations = 4.0 * static_cast<double>(x.size() + out.size());
  const double bytes_bf16 = activations + static_cast<double>(bf16.bytes());
  const double bytes_f32 = activations + static_cast<double>(f32.bytes());
  roofline.Report(state);
  int8_roofline.Report(state);
  int8_roofline.Report(state, "int8", times_int8, flops, bytes_int8);
  // The peak is measured for int8 products; products in int4 may exceed it.
  const double bytes_int4 = static_cast<double>(room[1] + int4.bytes()) + 4.0 * out.size();
  int8_roofline.Report(state, "int4", times_int4, flops, bytes_int4);
  roofline.Report(state, "bf16", times_bf16, flops, bytes_bf16);
  roofline.Report(state, "f32", times_f32, flops, bytes_f32);
  state.counters["MB_bf16"] = bytes_bf16 / 1e6;
  state.counters["MB_f32"] = bytes_f32 / 1e6;
  state.counters["MB_int8"] = bytes_int8 / 1e6;
  state.counters["MB_int4"] = bytes_int4 / 1e6;
  state.counters["int8_over_int4"] = times_int8.Median() / times_int4.Median();
  state.counters["quantize_us"] = 1e6 * times_quantize.Median();
  state.counters["bf16_over_int8"] = times_bf16.Median() / times_int8.Median();
  state.counters["MFLOP"] = flops / 1e6;
  state.counters["f32_over_bf16"] = times_f32.Median() / times_bf16.Median();
  state.SetLabel(std::string(ProfileName(profile)));
}

#define SLUICE_GEMM_BENCH(name) \
  BENCHMARK(BM_Gemm)            \
      ->Name(name)              \
      ->Iterations(kGemmRounds) \
      ->ArgNames({"profile", "threads", "rows", "k", "n", "matrices"})

SLUICE_GEMM_BENCH("Cached")->ArgsProduct(
    {{0, 1, 2, 3, 4}, {1}, {1, 4, 16, 64, 256}, {512}, {512}, {1}});
SLUICE_GEMM_BENCH("Dense")->ArgsProduct(
    {{1, 2, 3, 4}, {1, 2}, {1, 2, 4, 8, 16, 64}, {2048}, {2048}, {20}});
SLUICE_GEMM_BENCH("Large")->ArgsProduct(
    {{1, 2, 3, 4}, {1, 2}, {64, 256, 1024}, {2048}, {2048}, {1}});
SLUICE_GEMM_BENCH("Head")->ArgsProduct({{1, 2, 3, 4}, {1, 2}, {1, 4, 8}, {512}, {32768}, {4}});
SLUICE_GEMM_BENCH("PositionWise")
    ->ArgsProduct({{1, 2, 3, 4}, {1, 2}, {1, 4, 8, 64}, {512}, {512}, {64, 256}});
// The layers of encoders of two sizes.
SLUICE_GEMM_BENCH("Encoder")
    ->ArgsProduct({{1, 2, 3, 4}, {1}, {64, 128, 256, 1024}, {384, 1536}, {384, 1536}, {1}})
    ->ArgsProduct({{1, 2, 3, 4}, {1}, {64, 128, 256, 1024}, {768, 3072}, {768, 3072}, {1}});

}  // namespace
}  // namespace sluice::kernels
