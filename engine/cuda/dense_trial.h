// Whether an algorithm of the vendor's library computes a layer as the engine must have it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/device.h"

namespace sluice {

// The inputs and outputs of the layers that are tried for one shape. What a library promises of the
// bits of a row is not enough for our promise, so it is tried, over all powers of two up to
// MostRows(shape) and sizes beside them. That alone would pass what is wrong everywhere alike, so some
// rows are compared with sums in double:
//   - they are off by at most k 2^-24 sum|w|, the worst case of float sums of |x| <= 1, and 2^-7 of the
//     sum before f where out is bfloat16, room for rounding twice, 2^-16 where it is float;
//   - where a NaN or an infinity in x makes them not finite they are not, for the engine knows a broken
//     row by that.
class DenseTrial {
 public:
  // `weight` [k, n] and `bias`, on the device, are what the layers are tried with. Outlived by all.
  DenseTrial(const DenseShape& shape, const void* weight, const void* bias)
      : shape_(shape), weight_(weight), bias_(bias) {}

  absl::Status Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes);
  // FailedPrecondition says what is wrong with the layer; other errors are the device's.
  absl::Status Check(const DenseLayer& layer, DeviceStream& stream) const;

 private:
  size_t element_bytes() const;
  size_t out_bytes() const;  // of an element
  size_t x_row_bytes() const { return static_cast<size_t>(shape_.k) * element_bytes(); }
  size_t out_row_bytes() const { return static_cast<size_t>(shape_.n) * out_bytes(); }

  absl::Status Allocate(Device& device);
  absl::Status FillX(Device& device, DeviceStream& stream);
  // What the first rows ought to be.
  absl::Status SumUp(Device& device, DeviceStream& stream);
  void AddProducts(int32_t k, const void* weights);  // row k of the weight
  // `rows` rows of x, from `first` on.
  absl::Status Run(const DenseLayer& layer, int32_t first, int32_t rows, uint8_t garbage,
                   void* result, DeviceStream& stream) const;
  absl::Status CheckValues() const;

  const DenseShape shape_;
  const void* const weight_;
  const void* const bias_;
  size_t workspace_bytes_ = 0;
  DeviceMemory x_, out_, workspace_;
  PinnedMemory whole_, part_;     // outputs: of all rows, and of some
  std::vector<float> first_x_;    // [rows that are compared, k]
  std::vector<double> sums_;      // [rows that are compared, n], before f
  std::vector<double> absolute_;  // [n]: sums of |w|
};

}  // namespace sluice
