// Dense layers by a library of the device's vendor (cuBLASLt), beside our own kernel
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

// f, of those in kernels/activation_kind.h what a library has.
enum class DenseActivation { kNone, kRelu, kGeluTanh };
constexpr auto EnumNamesOf(DenseActivation) {
  using enum DenseActivation;
  return EnumNameTable<DenseActivation>(
      {{kNone, "none"}, {kRelu, "relu"}, {kGeluTanh, "gelu_tanh"}});
}

// What an algorithm is chosen by. The number of rows is no part of it: a row's bits must not depend on
// its company.
struct DenseShape {
  int32_t k;
  int32_t n;
  bool half;  // x, weight, bias and out are bfloat16, else float
  bool bias;
  bool accumulate;
  bool head = false;  // logits: out is float in any case, and rows are few
  DenseActivation activation = DenseActivation::kNone;

  bool half_out() const { return half && !head; }
  auto operator<=>(const DenseShape&) const = default;
};

// The most rows that an algorithm is tried with. Of a head, also the most that it ever gets.
inline constexpr int32_t kMostDenseRows = 4096;
inline constexpr int32_t kMostHeadRows = 32;
inline int32_t MostRows(const DenseShape& shape) {
  return shape.head ? kMostHeadRows : kMostDenseRows;
}

// What a layer may want of it.
inline constexpr size_t kMostWorkspaceBytes = size_t{32} << 20;

// On the device.
struct DenseArgs {
  const void* x;       // [rows, k], 256-byte aligned, as all
  const void* weight;  // [k, n]
  const void* bias;    // [n]; nullptr unless the shape has one
  int32_t rows;        // >= 1. All are computed, whatever the live part
  void* out;           // [rows, n]; must not overlap x
  // The layer's workspace_bytes(), of any content, which nothing else uses while the layer runs.
  void* workspace = nullptr;
};

// An algorithm as its library keeps it: of use to the same version of it on the same kind of device.
using DenseAlgorithm = std::array<uint64_t, 8>;

// One algorithm for one shape, for any number of rows. Outlived by its device.
class DenseLayer {
 public:
  virtual ~DenseLayer() = default;
  // Queues; may be captured. Its failure is the stream's.
  virtual void Run(const DenseArgs& args, DeviceStream& stream) const = 0;
  virtual size_t workspace_bytes() const = 0;  // up to kMostWorkspaceBytes
  virtual DenseAlgorithm algorithm() const = 0;
  virtual std::string Describe() const = 0;  // the algorithm, for people
};

}  // namespace sluice
