// Accesses of 16 bytes to rows of elements. Device code only, except for RowsAligned (bring.h),
// which returns on the host whether rows allow such accesses.
#pragma once

#include "kernels/cuda/bring.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// The elements that one access reads or writes. Their alignment equals their size.
template <typename T, int32_t kWidth = kCopyElements<T>>
struct alignas(kWidth * sizeof(T)) Pack {
  T at[kWidth];
};

template <int32_t kWidth>
struct Floats {
  float at[kWidth];
};

// Reads kWidth elements by accesses of at most 16 bytes. Requires that `from` is aligned to the
// size of such an access.
template <int32_t kWidth, typename T>
__device__ inline Floats<kWidth> Load(const T* from) {
  constexpr int32_t kEach = kWidth < kCopyElements<T> ? kWidth : kCopyElements<T>;
  Floats<kWidth> values;
  SLUICE_UNROLL
  for (int32_t i = 0; i < kWidth; i += kEach) {
    const Pack<T, kEach> pack = LoadWhole<Pack<T, kEach>>(from + i);
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) values.at[i + j] = Widen(pack.at[j]);
  }
  return values;
}

// Writes kWidth elements, rounded to T, in the same way.
template <int32_t kWidth, typename T>
__device__ inline void Store(const Floats<kWidth>& values, T* to) {
  constexpr int32_t kEach = kWidth < kCopyElements<T> ? kWidth : kCopyElements<T>;
  SLUICE_UNROLL
  for (int32_t i = 0; i < kWidth; i += kEach) {
    Pack<T, kEach> pack;
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) pack.at[j] = Narrow<T>(values.at[i + j]);
    StoreWhole(pack, to + i);
  }
}

// Copies kWidth elements bit by bit. The alignment is the same as for Load.
template <int32_t kWidth, typename T>
__device__ inline void Copy(const T* from, T* to) {
  static_assert(kWidth <= kCopyElements<T>);
  StoreWhole(LoadWhole<Pack<T, kWidth>>(from), to);
}

// The threads that share a row, and the place of the calling thread among them.
struct Team {
  int32_t index;
  int32_t size;
};

// The part of a row that a thread of a team holds in registers, kHeld elements in all. Of the packs
// from `first` on, it is the packs index, index + team size and so on; index is the thread's index.
// Which elements a thread holds does not depend on kAligned. kAligned means that accesses have 16
// bytes, and requires rows that RowsAligned allows. Elements beyond the row stay unchanged.
template <typename T, int32_t kHeld, bool kAligned>
class RowPart {
 public:
  __device__ RowPart(const Team& team, int32_t dim, float fill = 0, int32_t first = 0)
      : column_(first + team.index * kWidth), step_(team.size * kWidth), dim_(dim) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < kHeld; ++i) packs_[i / kWidth].at[i % kWidth] = Narrow<T>(fill);
  }

  __device__ void Load(const T* row) {
    SLUICE_UNROLL
    for (int32_t p = 0; p < kPacks; ++p) {
      const int32_t column = column_ + p * step_;
      if constexpr (kAligned) {
        if (column < dim_) packs_[p] = LoadWhole<Pack<T>>(row + column);
      } else {
        SLUICE_UNROLL
        for (int32_t j = 0; j < kWidth; ++j) {
          if (column + j < dim_) packs_[p].at[j] = row[column + j];
        }
      }
    }
  }

  __device__ void Store(T* row) const {
    SLUICE_UNROLL
    for (int32_t p = 0; p < kPacks; ++p) {
      const int32_t column = column_ + p * step_;
      if constexpr (kAligned) {
        if (column < dim_) StoreWhole(packs_[p], row + column);
      } else {
        SLUICE_UNROLL
        for (int32_t j = 0; j < kWidth; ++j) {
          if (column + j < dim_) row[column + j] = packs_[p].at[j];
        }
      }
    }
  }

  // Calls f(element, i) for the elements of the row that the thread holds, in ascending order.
  template <typename Function>
  __device__ void ForEach(Function f) {
    SLUICE_UNROLL
    for (int32_t p = 0; p < kPacks; ++p) {
      const int32_t column = column_ + p * step_;
      if (kAligned && column >= dim_) continue;
      SLUICE_UNROLL
      for (int32_t j = 0; j < kWidth; ++j) {
        if (kAligned || column + j < dim_) f(packs_[p].at[j], p * kWidth + j);
      }
    }
  }

  // Returns element `i` of the part.
  __device__ float At(int32_t i) const { return Widen(packs_[i / kWidth].at[i % kWidth]); }

 private:
  static constexpr int32_t kWidth = kCopyElements<T>, kPacks = kHeld / kWidth;
  static_assert(kHeld % kWidth == 0);

  int32_t column_;
  int32_t step_;
  int32_t dim_;
  Pack<T> packs_[kPacks];
};

}  // namespace sluice::kernels::cuda
