// The inner kernel of MaxSim, once for each instruction set.
#pragma once

#include <cstdint>

namespace sluice::kernels::simd {

// The columns of a block; stride of MaxSimBlock is a multiple of it.
inline constexpr int64_t kMaxSimColumns = 32;

struct MaxSimBlock {
  const float* query;  // [width, stride], a vector in each column
  int64_t stride;
  int64_t width;
  const float* documents;  // [count, width]
  int64_t count;
  float* best;  // [stride]; each is replaced by the largest product, if that is larger
};

using MaxSimKernel = void (*)(const MaxSimBlock& block);

void MaxSimPortable(const MaxSimBlock& block);
void MaxSimAvx2(const MaxSimBlock& block);
void MaxSimAvx512(const MaxSimBlock& block);

}  // namespace sluice::kernels::simd
