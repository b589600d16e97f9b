#include <immintrin.h>

#include "cascades/probe_loops.h"

namespace sluice::probe {
namespace {

using kernels::Int8Unit;
using kernels::Profile;

// Runs independent chains of multiply-adds in registers. The compiler cannot see the start values,
// because it would merge chains with equal ones.
void MultiplyPortable(int64_t steps) {
  __m128 sum[kChains] = {};
  for (__m128& s : sum) Keep(s);
  const __m128 factor = _mm_set1_ps(0.999f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m128& s : sum) s = _mm_add_ps(_mm_mul_ps(s, factor), factor);
  }
  for (__m128& s : sum) Keep(s);
}

__attribute__((target("avx2,fma"))) void MultiplyAvx2(int64_t steps) {
  __m256 sum[kChains] = {};
  for (__m256& s : sum) Keep(s);
  const __m256 factor = _mm256_set1_ps(0.999f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, factor, factor);
  }
  for (__m256& s : sum) Keep(s);
}

__attribute__((target("avx512f"))) void MultiplyAvx512(int64_t steps) {
  __m512 sum[kChains] = {};
  for (__m512& s : sum) Keep(s);
  const __m512 factor = _mm512_set1_ps(0.999f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, factor, factor);
  }
  for (__m512& s : sum) Keep(s);
}

__attribute__((target("avx512f,avx512bf16"))) void MultiplyAvx512Bf16(int64_t steps) {
  __m512 sum[kChains] = {};
  for (__m512& s : sum) Keep(s);
  const __m512bh factor = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F00));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, factor, factor);
  }
  for (__m512& s : sum) Keep(s);
}

// Each product of int16 and its addition are assembly. Otherwise the compiler keeps some of the
// sums in memory.
void MultiplyInt8Pairs(int64_t steps) {
  __m128i sum[kChains] = {};
  for (__m128i& s : sum) Keep(s);
  const __m128i factor = _mm_set1_epi16(3);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m128i& s : sum) {
      __m128i product;
      asm volatile(
          "movdqa %2, %1\n\t"
          "pmaddwd %2, %1\n\t"
          "paddd %1, %0"
          : "+x"(s), "=&x"(product)
          : "x"(factor));
    }
  }
  for (__m128i& s : sum) Keep(s);
}

__attribute__((target("avx2"))) void MultiplyInt8PairsAvx2(int64_t steps) {
  __m256i sum[kChains] = {};
  for (__m256i& s : sum) Keep(s);
  const __m256i factor = _mm256_set1_epi16(3);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m256i& s : sum) {
      __m256i product;
      asm volatile(
          "vpmaddwd %2, %2, %1\n\t"
          "vpaddd %1, %0, %0"
          : "+x"(s), "=&x"(product)
          : "x"(factor));
    }
  }
  for (__m256i& s : sum) Keep(s);
}

__attribute__((target("avx2,avxvnni"))) void MultiplyInt8DotsAvx2(int64_t steps) {
  __m256i sum[kChains] = {};
  for (__m256i& s : sum) Keep(s);
  __m256i factor = _mm256_set1_epi8(3);
  Keep(factor);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m256i& s : sum) s = _mm256_dpbusd_avx_epi32(s, factor, factor);
  }
  for (__m256i& s : sum) Keep(s);
}

__attribute__((target("avx512f,avx512vnni"))) void MultiplyInt8Dots(int64_t steps) {
  __m512i sum[kChains] = {};
  for (__m512i& s : sum) Keep(s);
  __m512i factor = _mm512_set1_epi8(3);
  Keep(factor);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m512i& s : sum) s = _mm512_dpbusd_epi32(s, factor, factor);
  }
  for (__m512i& s : sum) Keep(s);
}

constexpr int kTileChains = 4;

// Runs `multiply(steps)` with AMX's tiles configured. It is assembly because the intrinsics need a
// source file with its own compiler flags.
template <typename Multiply>
void WithTiles(int64_t steps, Multiply multiply) {
  struct alignas(64) Config {
    uint8_t palette = 1, reserved[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Config kConfig;
  asm volatile("ldtilecfg %0" : : "m"(kConfig));
  for (int64_t i = 0; i < steps; ++i) multiply();
  asm volatile("tilerelease");
}

// Multiplies as the GEMM does, two tiles by two.
void MultiplyAmx(int64_t steps) {
  WithTiles(steps, [] {
    asm volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n\t"
        "tdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n\t"
        "tdpbf16ps %tmm7, %tmm5, %tmm3");
  });
}

void MultiplyInt8Amx(int64_t steps) {
  WithTiles(steps, [] {
    asm volatile(
        "tdpbusd %tmm6, %tmm4, %tmm0\n\t"
        "tdpbusd %tmm7, %tmm4, %tmm1\n\t"
        "tdpbusd %tmm6, %tmm5, %tmm2\n\t"
        "tdpbusd %tmm7, %tmm5, %tmm3");
  });
}

// Each reads kStreams streams of `part` bytes.
void ReadPortable(const std::byte* begin, int64_t part) {
  __m128i sum[kStreams] = {};
  for (int64_t i = 0; i < part; i += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* const line = begin + s * part + i;
      __builtin_prefetch(line + kAhead);
#pragma GCC unroll 4
      for (int64_t at = 0; at < kLine; at += int64_t{sizeof(__m128i)}) {
        sum[s] ^= *reinterpret_cast<const __m128i*>(line + at);
      }
    }
  }
  for (__m128i& s : sum) Keep(s);
}

__attribute__((target("avx2"))) void ReadAvx2(const std::byte* begin, int64_t part) {
  __m256i sum[kStreams] = {};
  for (int64_t i = 0; i < part; i += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* const line = begin + s * part + i;
      __builtin_prefetch(line + kAhead);
#pragma GCC unroll 4
      for (int64_t at = 0; at < kLine; at += int64_t{sizeof(__m256i)}) {
        sum[s] ^= *reinterpret_cast<const __m256i*>(line + at);
      }
    }
  }
  for (__m256i& s : sum) Keep(s);
}

__attribute__((target("avx512f"))) void ReadAvx512(const std::byte* begin, int64_t part) {
  __m512i sum[kStreams] = {};
  for (int64_t i = 0; i < part; i += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* const line = begin + s * part + i;
      __builtin_prefetch(line + kAhead);
#pragma GCC unroll 4
      for (int64_t at = 0; at < kLine; at += int64_t{sizeof(__m512i)}) {
        sum[s] ^= *reinterpret_cast<const __m512i*>(line + at);
      }
    }
  }
  for (__m512i& s : sum) Keep(s);
}

}  // namespace

MultiplyAdds MultiplyAddsOf(Profile profile) {
  constexpr double kTileFlops = 2.0 * 16 * 16 * 32;
  switch (profile) {
    case Profile::kPortableF32:
    case Profile::kArm64F32:
      break;
    case Profile::kAvx2F32:
      return {MultiplyAvx2, 2.0 * 8 * kChains};
    case Profile::kAvx512F32:
      return {MultiplyAvx512, 2.0 * 16 * kChains};
    case Profile::kAvx512Bf16:
      return {MultiplyAvx512Bf16, 2.0 * 32 * kChains};
    case Profile::kAmxBf16:
      return {MultiplyAmx, kTileFlops * kTileChains};
  }
  return {MultiplyPortable, 2.0 * 4 * kChains};
}

MultiplyAdds Int8MultiplyAddsOf(Profile profile) {
  constexpr double kTileOps = 2.0 * 16 * 16 * 64;
  switch (Int8UnitOf(profile)) {
    case Int8Unit::kPairs:
    case Int8Unit::kDotsArm64:
    case Int8Unit::kMatricesArm64:
      break;
    case Int8Unit::kPairsAvx2:
      return {MultiplyInt8PairsAvx2, 2.0 * 16 * kChains};
    case Int8Unit::kDotsAvx2:
      return {MultiplyInt8DotsAvx2, 2.0 * 32 * kChains};
    case Int8Unit::kDots:
      return {MultiplyInt8Dots, 2.0 * 64 * kChains};
    case Int8Unit::kTiles:
      return {MultiplyInt8Amx, kTileOps * kTileChains};
  }
  return {MultiplyInt8Pairs, 2.0 * 8 * kChains};
}

Reader ReaderOf(Profile profile) {
  switch (profile) {
    case Profile::kPortableF32:
    case Profile::kArm64F32:
      break;
    case Profile::kAvx2F32:
      return ReadAvx2;
    case Profile::kAvx512F32:
    case Profile::kAvx512Bf16:
    case Profile::kAmxBf16:
      return ReadAvx512;
  }
  return ReadPortable;
}

}  // namespace sluice::probe
