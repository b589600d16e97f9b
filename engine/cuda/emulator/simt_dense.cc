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

template <typename T, typename Out>
void Compute(const DenseShape& shape, SimtDense kind, const DenseArgs& args) {
  const T* const weight = static_cast<const T*>(args.weight);
  const T* const bias = static_cast<const T*>(args.bias);
  const bool backwards =
      kind == SimtDense::kBackwards || (kind == SimtDense::kVaries && args.rows > kManyRows);
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
    }
    for (int64_t n = 0; n < columns; ++n) {
      float sum = sums[n];
      if (shape.bias) sum += Widen(bias[n]);
      if (shape.accumulate) sum += Widen(out[n]);
      out[n] = Narrow<Out>(Finish(shape, kind, sum));
    }
  }
}

}  // namespace

bool DenseSupports(const DenseShape& shape) {
  constexpr size_t kRowAlignment = 16;
  const auto aligned = [](size_t width) { return width * sizeof(BFloat16) % kRowAlignment == 0; };
  return !shape.half || (aligned(shape.k) && aligned(shape.n));
}

absl::Status CheckDense(const DenseShape& shape, SimtDense kind, const DenseArgs& args) {
  // The alignment for which the library is asked for algorithms, unless told otherwise.
  constexpr uintptr_t kAlignment = 256;
  const auto aligned = [](const void* memory) {
    return memory != nullptr && reinterpret_cast<uintptr_t>(memory) % kAlignment == 0;
  };
  const size_t element = shape.half ? sizeof(BFloat16) : sizeof(float);
  const char* const x = static_cast<const char*>(args.x);
  const char* const out = static_cast<const char*>(args.out);
  const bool apart =
      x + args.rows * element * shape.k <= out || out + DenseOutBytes(shape, args.rows) <= x;
  const bool valid = args.rows >= 1 && args.rows <= MostRows(shape) &&
                     TriedRows(args.rows) == args.rows && aligned(args.x) && aligned(args.weight) &&
                     aligned(args.out) && apart && (!shape.bias || aligned(args.bias)) &&
                     (DenseWorkspaceBytes(shape, kind) == 0 || aligned(args.workspace));
  if (valid) return absl::OkStatus();
  return absl::InternalError("cublasLtMatmul failed with status 7");  // CUBLAS_STATUS_INVALID_VALUE
}

size_t DenseWorkspaceBytes(const DenseShape& shape, SimtDense kind) {
  const bool uses = kind == SimtDense::kWorkspace || kind == SimtDense::kTrustsWorkspace;
  return uses ? shape.n * sizeof(float) : 0;
}

size_t DenseOutBytes(const DenseShape& shape, int32_t rows) {
  const size_t element = shape.half_out() ? sizeof(BFloat16) : sizeof(float);
  return element * rows * shape.n;
}

void ComputeDense(const DenseShape& shape, SimtDense kind, const DenseArgs& args) {
  if (!shape.half) return Compute<float, float>(shape, kind, args);
  if (shape.head) return Compute<BFloat16, float>(shape, kind, args);
  Compute<BFloat16, BFloat16>(shape, kind, args);
}

}  // namespace sluice::simt
