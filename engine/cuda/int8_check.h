// A trial whether an algorithm of the vendor's library multiplies in int8 as the engine requires.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/device.h"
#include "engine/cuda/row_check.h"

namespace sluice {

// The inputs with which the layers of one shape are tried, and what is expected of them, for a
// RowCheck. Sums are exact, so that a layer that passes has the very bits of our kernel: rows are
// those of integer sums, without any bound on an error. Among them is the row with the largest sums
// that the weight allows, which rounding or saturating on the way would show. Sums become numbers
// as they do when the layer serves, and the scales of some rows are not finite.
class Int8Check {
 public:
  // Layers are tried with `weight` [n, k] on the device, which outlives this.
  Int8Check(const DenseShape& shape, const int8_t* weight) : shape_(shape), weight_(weight) {}

  absl::Status Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes);
  // Returns FailedPrecondition with the fault of the layer; other errors are those of the device.
  absl::Status Check(const DenseLayer& layer, DeviceStream& stream) const;

 private:
  // Returns the rows of x, [most rows, k].
  absl::StatusOr<std::vector<int8_t>> DrawX();
  // Computes what is expected of the first rows of `x`.
  absl::Status Expect(const std::vector<int8_t>& x, RowCheckSpec* spec);

  const DenseShape shape_;
  const int8_t* const weight_;
  size_t workspace_bytes_ = 0;
  std::optional<CheckInputs> inputs_;
  const int8_t* x_ = nullptr;          // [most rows, k]
  const float* row_scales_ = nullptr;  // [most rows]
  const float* scales_ = nullptr;      // [n]
  const int32_t* counts_ = nullptr;    // of rows, by batch
  int32_t* sums_ = nullptr;            // [most rows, n]
  void* workspace_ = nullptr;
  std::optional<RowCheck> check_;
};

}  // namespace sluice
