// Dense layers by a library of the device's vendor (cuBLASLt), beside our own kernel
// (kernels/cuda/projection.h).
//
//   out[r, :] = x[r, :] W + bias  (+ out[r, :] if accumulate), sums in float, rounded once
#pragma once

#include <cstdint>

namespace sluice {

class DeviceStream;

// What an algorithm is chosen by. The number of rows is no part of it: a row's bits must not depend on
// its company.
struct DenseShape {
  int32_t k;
  int32_t n;
  bool half;  // x, weight, bias and out are bfloat16, else float
  bool bias;
  bool accumulate;

  auto operator<=>(const DenseShape&) const = default;
};

// On the device.
struct DenseArgs {
  const void* x;       // [rows, k], 256-byte aligned, as all
  const void* weight;  // [k, n]
  const void* bias;    // [n]; nullptr unless the shape has one
  int32_t rows;        // >= 1. All are computed, whatever the live part
  void* out;           // [rows, n]; must not overlap x
};

// One algorithm for one shape, without workspace, for any number of rows. Outlived by its device.
class DenseLayer {
 public:
  virtual ~DenseLayer() = default;
  // Queues; may be captured. Its failure is the stream's.
  virtual void Run(const DenseArgs& args, DeviceStream& stream) const = 0;
};

}  // namespace sluice
