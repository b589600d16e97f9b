// GEMM throughput on one thread, as a fraction of the fp32 peak that the same run reaches, and the
// rate at which it streams weights. Arguments: profile, rows, k, n.
#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace sluice::kernels {
namespace {

constexpr Profile kProfiles[] = {Profile::kPortableF32, Profile::kAvx2F32, Profile::kAvx512F32};
constexpr int64_t kPeakSteps = 4'000'000;
constexpr int kChains = 12;  // more than latency times throughput, fewer than registers

// CPU time, so that neighbours on the machine do not count as work.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Independent chains of multiply-adds, in registers. They start from values that the compiler
// cannot know: it would merge equal ones.
void PeakPortable() {
  __m128 sum[kChains] = {};
  for (__m128& s : sum) benchmark::DoNotOptimize(s);
  const __m128 factor = _mm_set1_ps(0.999f);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (__m128& s : sum) s = _mm_add_ps(_mm_mul_ps(s, factor), factor);
  }
  for (__m128& s : sum) benchmark::DoNotOptimize(s);
}

__attribute__((target("avx2,fma"))) void PeakAvx2() {
  __m256 sum[kChains] = {};
  for (__m256& s : sum) benchmark::DoNotOptimize(s);
  const __m256 factor = _mm256_set1_ps(0.999f);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, factor, factor);
  }
  for (__m256& s : sum) benchmark::DoNotOptimize(s);
}

__attribute__((target("avx512f"))) void PeakAvx512() {
  __m512 sum[kChains] = {};
  for (__m512& s : sum) benchmark::DoNotOptimize(s);
  const __m512 factor = _mm512_set1_ps(0.999f);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, factor, factor);
  }
  for (__m512& s : sum) benchmark::DoNotOptimize(s);
}

double PeakFlops(Profile profile) {
  const bool avx512 = profile == Profile::kAvx512F32, avx2 = profile == Profile::kAvx2F32;
  const int lanes = avx512 ? 16 : avx2 ? 8 : 4;
  double best = 1e9;
  for (int trial = 0; trial < 5; ++trial) {
    const double start = ThreadSeconds();
    avx512 ? PeakAvx512() : avx2 ? PeakAvx2() : PeakPortable();
    best = std::min(best, ThreadSeconds() - start);
  }
  return 2.0 * lanes * kChains * kPeakSteps / best;
}

void BM_Gemm(benchmark::State& state) {
  const Profile profile = kProfiles[state.range(0)];
  const int64_t rows = state.range(1), k = state.range(2), n = state.range(3);
  if (!ProfileSupported(profile)) {
    state.SkipWithError("this machine lacks the instructions");
    return;
  }
  ThreadPool pool(1);
  const Context context = {profile, &pool};
  const std::vector<float> data(static_cast<size_t>(k * n), 0.01f);
  const PackedWeights weights =
      PackedWeights::Pack(context, {data.data(), DType::kF32, 1, k, n, true});
  const std::vector<float> x(static_cast<size_t>(rows * k), 0.5f);
  std::vector<float> out(static_cast<size_t>(rows * n));
  const double peak = PeakFlops(profile);
  double best = 1e9;
  for (auto _ : state) {
    const double start = ThreadSeconds();
    Gemm(context, weights, rows, {x.data(), k, nullptr, 0, out.data(), n, false});
    best = std::min(best, ThreadSeconds() - start);
  }
  const double products = static_cast<double>(k * n);
  state.counters["peak_GFLOPs"] = peak / 1e9;
  state.counters["of_peak"] = 2.0 * static_cast<double>(rows) * products / best / peak;
  state.counters["weights_GBps"] = 4.0 * products / best / 1e9;
  state.SetLabel(std::string(ProfileName(profile)));
}
BENCHMARK(BM_Gemm)
    ->ArgsProduct({{0, 1, 2}, {1, 4, 32, 128}, {512, 2048}, {512, 2048}})
    ->Args({1, 1, 512, 32000})
    ->Args({1, 64, 512, 32000});

}  // namespace
}  // namespace sluice::kernels
