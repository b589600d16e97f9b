#include "loadtest/bench/kernels/roofline.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "kernels/cpu/memory.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kTasks = 16;          // per thread, so that a late thread loses little
constexpr int64_t kPeakSteps = 20'000;  // per task
constexpr int kChains = 12;             // more than latency times throughput, fewer than registers
constexpr int64_t kReadBytes = int64_t{128} << 20;
constexpr int64_t kReadWords = kReadBytes / int64_t{sizeof(uint64_t)};

// Runs independent chains of multiply-adds in registers. They start from values that the compiler
// does not know, because it would merge equal ones.
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

__attribute__((target("avx512f,avx512bf16"))) void PeakAvx512Bf16() {
  __m512 sum[kChains] = {};
  for (__m512& s : sum) benchmark::DoNotOptimize(s);
  const __m512bh factor = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F00));
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, factor, factor);
  }
  for (__m512& s : sum) benchmark::DoNotOptimize(s);
}

constexpr int kTileChains = 4;

// Multiplies as the GEMM does, two tiles by two. It is assembly because the intrinsics need a
// source file with its own compiler flags.
void PeakAmx() {
  struct alignas(64) Config {
    uint8_t palette = 1, reserved[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Config kConfig;
  asm volatile("ldtilecfg %0" : : "m"(kConfig));
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    asm volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n\t"
        "tdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n\t"
        "tdpbf16ps %tmm7, %tmm5, %tmm3");
  }
  asm volatile("tilerelease");
}

struct Peak {
  void (*run)();
  double flops;  // per step
};

Peak PeakOf(Profile profile) {
  constexpr double kTileFlops = 2.0 * 16 * 16 * 32;
  switch (profile) {
    case Profile::kPortableF32:
      break;
    case Profile::kAvx2F32:
      return {PeakAvx2, 2.0 * 8 * kChains};
    case Profile::kAvx512F32:
      return {PeakAvx512, 2.0 * 16 * kChains};
    case Profile::kAvx512Bf16:
      return {PeakAvx512Bf16, 2.0 * 32 * kChains};
    case Profile::kAmxBf16:
      return {PeakAmx, kTileFlops * kTileChains};
  }
  return {PeakPortable, 2.0 * 4 * kChains};
}

// Returns the floating-point operations of Roofline::Multiply.
double FlopsOfMultiply(const Context& context) {
  return PeakOf(context.profile).flops * kPeakSteps * kTasks * context.pool->threads();
}

// Reads several streams at once, as the kernels read panels; a single stream would wait for its
// prefetcher.
void ReadAll(const uint64_t* begin, int64_t words) {
  constexpr int kStreams = 4, kLine = 8;  // words of a cache line
  constexpr int kAhead = 32 * kLine;
  const int64_t part = words / kStreams;
  __m128i sum[kStreams] = {};
  for (int64_t i = 0; i + kLine <= part; i += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const uint64_t* line = begin + s * part + i;
      __builtin_prefetch(line + kAhead);
#pragma GCC unroll 4
      for (int w = 0; w < kLine; w += 2) {
        sum[s] ^= _mm_loadu_si128(reinterpret_cast<const __m128i*>(line + w));
      }
    }
  }
  for (__m128i& s : sum) benchmark::DoNotOptimize(s);
}

}  // namespace

double Now(const Context& context) {
  timespec now;
  clock_gettime(context.pool->threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Series::Median() const {
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<int64_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

Roofline::Roofline(const Context& context)
    : context_(context), memory_(static_cast<uint64_t*>(AllocateMemory(kReadBytes))) {
  SLUICE_CHECK(memory_ != nullptr);
  std::fill_n(memory_.get(), kReadWords, 1);
}

void Roofline::Multiply() const {
  const Peak peak = PeakOf(context_.profile);
  context_.pool->ParallelFor(kTasks * context_.pool->threads(), 1,
                             [&](int64_t, int64_t, int) { peak.run(); });
}

void Roofline::Read() const {
  const int64_t tasks = kTasks * context_.pool->threads();
  context_.pool->ParallelFor(tasks, 1, [&](int64_t begin, int64_t end, int) {
    ReadAll(memory_.get() + kReadWords / tasks * begin, kReadWords / tasks * (end - begin));
  });
}

void Roofline::Probe() {
  const double start = Now(context_);
  Multiply();
  const double middle = Now(context_);
  Read();
  multiply_.Add(middle - start);
  read_.Add(Now(context_) - middle);
}

void Roofline::Report(benchmark::State& state) const {
  state.counters["peak_GFLOPs"] = FlopsOfMultiply(context_) / multiply_.Median() / 1e9;
  state.counters["read_GBps"] = kReadBytes / read_.Median() / 1e9;
}

void Roofline::Report(benchmark::State& state, const char* name, const Series& times, double flops,
                      double bytes) const {
  const std::string prefix(name);
  const double seconds = times.Median();
  const double peak = FlopsOfMultiply(context_) / multiply_.Median();
  const double bandwidth = kReadBytes / read_.Median();
  state.counters[prefix + "_us"] = 1e6 * seconds;
  state.counters[prefix + "_of_flops"] = flops / seconds / peak;
  state.counters[prefix + "_of_read"] = bytes / seconds / bandwidth;
}

}  // namespace sluice::kernels
