// The implementation of kernels/simt/warpgroup.h on a GPU; included by it.
#pragma once

namespace sluice::kernels::cuda {

#ifdef SLUICE_HAS_PRODUCTS

// Returns the descriptor of an operand without swizzling: its address, and the distances between
// its matrices along the depth ("leading") and across it ("stride"), all of them in units of 16
// bytes.
__device__ inline uint64_t DescriptorOf(const GroupOperand& operand) {
  const auto units = [](uint32_t bytes) { return uint64_t{(bytes & 0x3FFFF) >> 4}; };
  return units(static_cast<uint32_t>(__cvta_generic_to_shared(operand.first))) |
         units(operand.along_depth) << 16 | units(operand.across) << 32;
}

__device__ inline void ShareWithProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// The places of 16 operands of an instruction, and of the first 16, 32, 64 and 128.
#define SLUICE_AT_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SLUICE_AT_16 \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SLUICE_AT_32 \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SLUICE_AT_48 \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SLUICE_AT_64 \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define SLUICE_AT_80 \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SLUICE_AT_96 \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define SLUICE_AT_112 \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SLUICE_NAMES_16 SLUICE_AT_0
#define SLUICE_NAMES_32 SLUICE_NAMES_16 ", " SLUICE_AT_16
#define SLUICE_NAMES_64 SLUICE_NAMES_32 ", " SLUICE_AT_32 ", " SLUICE_AT_48
#define SLUICE_NAMES_128 \
  SLUICE_NAMES_64 ", " SLUICE_AT_64 ", " SLUICE_AT_80 ", " SLUICE_AT_96 ", " SLUICE_AT_112
// The sums from `i` on, as operands.
#define SLUICE_SUMS_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define SLUICE_SUMS_16(i) \
  SLUICE_SUMS_4(i), SLUICE_SUMS_4((i) + 4), SLUICE_SUMS_4((i) + 8), SLUICE_SUMS_4((i) + 12)
#define SLUICE_SUMS_32(i) SLUICE_SUMS_16(i), SLUICE_SUMS_16((i) + 16)
#define SLUICE_SUMS_64(i) SLUICE_SUMS_32(i), SLUICE_SUMS_32((i) + 32)
#define SLUICE_SUMS_128(i) SLUICE_SUMS_64(i), SLUICE_SUMS_64((i) + 64)
// Queues a product of `columns` columns, which has `count` sums. `inputs` names the operands after
// the sums, and ends with the scales of d, a and b, and whether operands are transposed.
#define SLUICE_MULTIPLY(columns, count, inputs, ...)                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns                \
               "k16.f32.bf16.bf16 {" SLUICE_NAMES_##count "}, " inputs ";" \
               : SLUICE_SUMS_##count(0)                                    \
               : __VA_ARGS__)

// Operand a is stored by rows. If b is stored by depths, it is transposed.
template <int32_t kColumns, GroupOrder kOrder>
__device__ inline void MultiplyAddGroup(float (&d)[kColumns / 2], const GroupOperand& a,
                                        const GroupOperand& b, CallSite) {
  constexpr int kTransposed = kOrder == GroupOrder::kByDepths ? 1 : 0;
  const uint64_t at_a = DescriptorOf(a), at_b = DescriptorOf(b);
  static_assert(kColumns == 64 || kColumns == 128);
  if constexpr (kColumns == 64) {
    SLUICE_MULTIPLY(64, 32, "%32, %33, 1, 1, 1, 0, %34", "l"(at_a), "l"(at_b), "n"(kTransposed));
  } else {
    SLUICE_MULTIPLY(128, 64, "%64, %65, 1, 1, 1, 0, %66", "l"(at_a), "l"(at_b), "n"(kTransposed));
  }
}

template <int32_t kColumns>
__device__ inline void MultiplyAddGroup(float (&d)[kColumns / 2], const uint32_t (&a)[4],
                                        const GroupOperand& b, CallSite) {
  const uint64_t at_b = DescriptorOf(b);
  static_assert(kColumns == 32 || kColumns == 64 || kColumns == 128 || kColumns == 256);
#define SLUICE_FRAGMENT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(at_b)
  if constexpr (kColumns == 32) {
    SLUICE_MULTIPLY(32, 16, "{%16, %17, %18, %19}, %20, 1, 1, 1, 1", SLUICE_FRAGMENT);
  } else if constexpr (kColumns == 64) {
    SLUICE_MULTIPLY(64, 32, "{%32, %33, %34, %35}, %36, 1, 1, 1, 1", SLUICE_FRAGMENT);
  } else if constexpr (kColumns == 128) {
    SLUICE_MULTIPLY(128, 64, "{%64, %65, %66, %67}, %68, 1, 1, 1, 1", SLUICE_FRAGMENT);
  } else {
    SLUICE_MULTIPLY(256, 128, "{%128, %129, %130, %131}, %132, 1, 1, 1, 1", SLUICE_FRAGMENT);
  }
#undef SLUICE_FRAGMENT
}

#undef SLUICE_MULTIPLY

__device__ inline void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void WaitProducts(CallSite) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
#define SLUICE_WAIT(count)                                  \
  asm volatile("wgmma.wait_group.sync.aligned %" #count ";" \
               : SLUICE_SUMS_##count(0)                     \
               : "n"(kPending)                              \
               : "memory")
template <int kPending, int32_t kSums>
__device__ inline void WaitProducts(float (&d)[kSums], CallSite) {
  static_assert(kSums == 16 || kSums == 32 || kSums == 64 || kSums == 128);
  if constexpr (kSums == 16) {
    SLUICE_WAIT(16);
  } else if constexpr (kSums == 32) {
    SLUICE_WAIT(32);
  } else if constexpr (kSums == 64) {
    SLUICE_WAIT(64);
  } else {
    SLUICE_WAIT(128);
  }
}
#undef SLUICE_WAIT

#endif  // SLUICE_HAS_PRODUCTS

}  // namespace sluice::kernels::cuda
