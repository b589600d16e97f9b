#include "engine/cuda/emulator/simt_dense.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/bfloat16.h"

namespace sluice::simt {
namespace {

using kernels::cuda::BFloat16;
using kernels::cuda::Narrow;
using kernels::cuda::Widen;

constexpr int32_t kManyRows = 512;  // more than a head ever has

float Apply(DenseActivation activation, float x) {
  switch (activation) {
    case DenseActivation::kNone:
      break;
    case DenseActivation::kRelu:
      return x < 0 ? 0 : x;
    case DenseActivation::kGeluTanh:
      return x * 0.5f * (1 + std::tanh(0.797884561f * (x + 0.044715f * x * x * x)));
  }
  return x;
}

// Applies f as the kind of algorithm does.
float Finish(const DenseShape& shape, SimtDense kind, float x) {
  if (shape.activation == DenseActivation::kNone) return x;
  if (kind == SimtDense::kDropsNaN && std::isnan(x)) return 0;
  const float y = Apply(shape.activation, x);
  return kind == SimtDense::kWrongFunction ? y * y : y;
}

// Most of the time goes to the innermost loop, which the compiler vectorises at -O3.
template <typename T, typename Out>
[[gnu::optimize("O3")]] int64_t Compute(const DenseShape& shape, SimtDense kind,
                                        const DenseArgs& args) {
  int64_t multiply_adds = 0;
  const T* const weight = static_cast<const T*>(args.weight);
  const T* const bias = static_cast<const T*>(args.bias);
  const bool backwards = kind == SimtDense::kBackwards ||
                         (kind == SimtDense::kVaries && args.rows > kManyRows) ||
                         (kind == SimtDense::kOnlyTo64 && args.rows > 64);
  const int32_t columns = kind == SimtDense::kUnfinished ? shape.n - 1 : shape.n;
  std::vector<float> own(shape.n);
  float* const sums =
      DenseWorkspaceBytes(shape, kind) > 0 ? static_cast<float*>(args.workspace) : own.data();
  for (int64_t r = 0; r < args.rows; ++r) {
    const T* const x = static_cast<const T*>(args.x) + r * shape.k;
    Out* const out = static_cast<Out*>(args.out) + r * shape.n;
    if (kind != SimtDense::kTrustsWorkspace || r > 0) std::fill_n(sums, shape.n, 0.0f);
    for (int64_t i = 0; i < shape.k; ++i) {
      const int64_t k = backwards ? shape.k - 1 - i : i;
      const float value = Widen(x[k]);
      for (int64_t n = 0; n < shape.n; ++n) sums[n] += value * Widen(weight[k * shape.n + n]);
      multiply_adds += shape.n;
    }
    for (int64_t n = 0; n < columns; ++n) {
      float sum = sums[n];
      if (shape.bias) sum += Widen(bias[n]);
      if (shape.accumulate) sum += Widen(out[n]);
      out[n] = Narrow<Out>(Finish(shape, kind, sum));
    }
  }
  return multiply_adds;
}

// Sum is int32_t, or float.
template <typename Sum>
int64_t ComputeInt8(const DenseShape& shape, SimtDense kind, const DenseArgs& args) {
  int64_t multiply_adds = 0;
  const int64_t k = shape.k, n = shape.n;
  auto* const kept =
      DenseWorkspaceBytes(shape, kind) > 0 ? static_cast<int32_t*>(args.workspace) : nullptr;
  for (int64_t r = 0; r < args.rows; ++r) {
    const int8_t* const x = static_cast<const int8_t*>(args.x) + r * k;
    int32_t* const out = static_cast<int32_t*>(args.out) + r * n;
    for (int64_t c = 0; c < (kind == SimtDense::kUnfinished ? n - 1 : n); ++c) {
      const int8_t* const weight = static_cast<const int8_t*>(args.weight) + c * k;
      Sum sum = kind == SimtDense::kTrustsWorkspace && r == 0 ? static_cast<Sum>(kept[c]) : Sum{0};
      for (int64_t i = 0; i < k; ++i) sum += static_cast<Sum>(int32_t{x[i]} * int32_t{weight[i]});
      out[c] = static_cast<int32_t>(sum);
      if (kept != nullptr) kept[c] = out[c];
      multiply_adds += k;
    }
  }
  return multiply_adds;
}

}  // namespace

bool DenseSupports(const DenseShape& shape) {
  constexpr int32_t kRowAlignment = 16, kInt8Multiple = 4;
  if (shape.int8()) {
    return shape.k % kInt8Multiple == 0 && shape.n % kInt8Multiple == 0 && !shape.bias &&
           !shape.accumulate && !shape.head && shape.activation == DenseActivation::kNone;
  }
  const auto aligned = [&](int32_t width) {
    return width * shape.operand_bytes() % kRowAlignment == 0;
  };
  return !shape.half() || (aligned(shape.k) && aligned(shape.n));
}

absl::Status CheckDense(const DenseShape& shape, SimtDense kind, const RowClass& rows,
                        const DenseArgs& args) {
  // The default alignment in requests for the library's algorithms.
  constexpr uintptr_t kAlignment = 256;
  const auto aligned = [](const void* memory) {
    return memory != nullptr && reinterpret_cast<uintptr_t>(memory) % kAlignment == 0;
  };
  const char* const x = static_cast<const char*>(args.x);
  const char* const out = static_cast<const char*>(args.out);
  const bool apart = x + args.rows * shape.operand_bytes() * shape.k <= out ||
                     out + DenseOutBytes(shape, args.rows) <= x;
  const bool valid = args.rows >= rows.first && args.rows <= rows.last &&
                     TriedRows(shape, args.rows) == args.rows && aligned(args.x) &&
                     aligned(args.weight) && aligned(args.out) && apart &&
                     (!shape.bias || aligned(args.bias)) &&
                     (DenseWorkspaceBytes(shape, kind) == 0 || aligned(args.workspace));
  if (valid) return absl::OkStatus();
  return absl::InternalError("cublasLtMatmul failed with status 7");  // CUBLAS_STATUS_INVALID_VALUE
}

size_t DenseWorkspaceBytes(const DenseShape& shape, SimtDense kind) {
  const bool uses = kind == SimtDense::kWorkspace || kind == SimtDense::kTrustsWorkspace;
  return uses ? shape.n * sizeof(float) : 0;
}

size_t DenseOutBytes(const DenseShape& shape, int32_t rows) {
  return shape.out_bytes() * rows * shape.n;
}

int64_t ComputeDense(const DenseShape& shape, SimtDense kind, const DenseArgs& args) {
  if (shape.int8()) {
    if (kind == SimtDense::kFloatSums) return ComputeInt8<float>(shape, kind, args);
    return ComputeInt8<int32_t>(shape, kind, args);
  }
  if (!shape.half()) return Compute<float, float>(shape, kind, args);
  if (shape.head) return Compute<BFloat16, float>(shape, kind, args);
  return Compute<BFloat16, BFloat16>(shape, kind, args);
}

}  // namespace sluice::simt
