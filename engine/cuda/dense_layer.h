// Dense layers by a library of the vendor (cuBLASLt), beside our own kernel
// (kernels/cuda/projection.h).
//
//   out[r, :] = f(x[r, :] W + bias  (+ out[r, :] if accumulate)), sums in float, rounded once
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/enum_names.h"

namespace sluice {

class DeviceStream;

// The functions f of kernels/activation_kind.h that a library has.
enum class DenseActivation { kNone, kRelu, kGeluTanh };
constexpr auto EnumNamesOf(DenseActivation) {
  using enum DenseActivation;
  return EnumNameTable<DenseActivation>(
      {{kNone, "none"}, {kRelu, "relu"}, {kGeluTanh, "gelu_tanh"}});
}

// The key by which an algorithm is chosen. It does not contain the number of rows, because the bits
// of a row must not depend on other rows.
struct DenseShape {
  int32_t k;
  int32_t n;
  bool half;  // whether x, weight, bias and out are bfloat16, not float
  bool bias;
  bool accumulate;
  bool head = false;  // whether out is logits: always float, and few rows
  DenseActivation activation = DenseActivation::kNone;

  bool half_out() const { return half && !head; }
  auto operator<=>(const DenseShape&) const = default;
};

// The largest number of rows with which an algorithm is tried; for a head also the largest that it
// computes.
inline constexpr int32_t kMostDenseRows = 4096;
inline constexpr int32_t kMostHeadRows = 256;
inline int32_t MostRows(const DenseShape& shape) {
  return shape.head ? kMostHeadRows : kMostDenseRows;
}
// The largest number of rows for which the library is asked whether it takes an algorithm, and with
// how much workspace.
inline int32_t MostCheckedRows(const DenseShape& shape) {
  return shape.head ? kMostHeadRows : 1 << 16;
}

// The largest workspace of a layer.
inline constexpr size_t kMostWorkspaceBytes = size_t{32} << 20;

// The arguments of a layer, on the device.
struct DenseArgs {
  const void* x;       // [rows, k], 256-byte aligned, like all
  const void* weight;  // [k, n]
  const void* bias;    // [n]; nullptr unless the shape has one
  int32_t rows;        // >= 1; all are computed, live or not
  void* out;           // [rows, n]; must not overlap x
  // Memory of workspace_bytes() with any content. Nothing else may use it while the layer runs.
  void* workspace = nullptr;
};

// An algorithm in the format of its library: valid for the same version of the library on the same
// kind of device.
using DenseAlgorithm = std::array<uint64_t, 8>;

// One algorithm for one shape, for any number of rows. Its device outlives it.
class DenseLayer {
 public:
  virtual ~DenseLayer() = default;
  // Queues the layer; may be captured. A failure is that of the stream.
  virtual void Run(const DenseArgs& args, DeviceStream& stream) const = 0;
  virtual size_t workspace_bytes() const = 0;  // up to kMostWorkspaceBytes
  virtual DenseAlgorithm algorithm() const = 0;
  virtual std::string Describe() const = 0;  // describes the algorithm for people
};

}  // namespace sluice
