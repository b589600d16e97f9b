#include "kernels/cuda/batched.h"

#include <cmath>

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

__global__ void MatMulKernel(MatMulArgs args) {
  const MatMulSizes sizes = *args.sizes;
  const int64_t columns = sizes.n, elements = int64_t{sizes.batch} * sizes.m * columns;
  const int64_t step = int64_t{GridBlocks()} * kThreads;
  for (int64_t i = int64_t{BlockIndex()} * kThreads + ThreadIndex(); i < elements; i += step) {
    const int64_t row = i / columns, matrix = row / sizes.m;
    const float* a = args.a + row * sizes.k;
    const float* b = args.b + matrix * sizes.k * columns + i % columns;
    float sum = 0;
    for (int32_t k = 0; k < sizes.k; ++k) sum = fmaf(a[k], b[k * columns], sum);
    args.out[i] = sum;
  }
}

// Returns a[i][j] minus the contributions of the columns of L before j.
__device__ float Remainder(const float* a, const float* l, int64_t n, int64_t i, int64_t j) {
  float rest = a[i * n + j];
  for (int64_t k = 0; k < j; ++k) rest = fmaf(-l[i * n + k], l[j * n + k], rest);
  return rest;
}

__global__ void CholeskyKernel(CholeskyArgs args) {
  const CholeskySizes sizes = *args.sizes;
  const int64_t n = sizes.n;
  for (int32_t matrix = BlockIndex(); matrix < sizes.batch; matrix += GridBlocks()) {
    const float* a = args.a + matrix * n * n;
    float* l = args.out + matrix * n * n;
    for (int64_t i = ThreadIndex(); i < n * n; i += kThreads) {
      if (i % n > i / n) l[i] = 0;
    }
    for (int64_t j = 0; j < n; ++j) {
      if (ThreadIndex() == 0) l[j * n + j] = sqrtf(Remainder(a, l, n, j, j));
      SyncBlock();
      const float diagonal = l[j * n + j];
      for (int64_t i = j + 1 + ThreadIndex(); i < n; i += kThreads) {
        l[i * n + j] = Remainder(a, l, n, i, j) / diagonal;
      }
      SyncBlock();
    }
  }
}

const Kernel kMatMul = KernelOf("BatchedMatMul", &MatMulKernel);
const Kernel kCholesky = KernelOf("Cholesky", &CholeskyKernel);

}  // namespace

void BatchedMatMul(Stream& stream, const MatMulArgs& args) {
  const int64_t blocks = (args.max_elements + kThreads - 1) / kThreads;
  Launch(stream, kMatMul, {PersistentBlocks(stream, blocks, 8), kThreads}, args);
}

void Cholesky(Stream& stream, const CholeskyArgs& args) {
  Launch(stream, kCholesky, {PersistentBlocks(stream, args.max_batch, 8), kThreads}, args);
}

}  // namespace sluice::kernels::cuda
