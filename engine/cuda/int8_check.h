// A trial of whether an algorithm of the vendor's library multiplies in int8 as the engine needs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/device.h"
#include "engine/cuda/row_check.h"

namespace sluice {

// The inputs and expected outputs of a RowCheck for the layers of one shape. Sums are exact, so a
// layer that passes has the same bits as our kernel. Expected rows are computed with integer sums,
// and no error is allowed. One row has the largest sums that the weight allows, to detect rounding
// or saturation on the way. Sums become numbers in the same way as when the layer serves, and the
// scales of some rows are not finite.
class Int8Check {
 public:
  // Layers are tried with `weight` [n, k] on the device, which outlives this.
  Int8Check(const DenseShape& shape, const int8_t* weight) : shape_(shape), weight_(weight) {}

  absl::Status Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes);
  // Returns FailedPrecondition with the fault if the layer fails; other errors come from the
  // device.
  absl::Status Check(const DenseLayer& layer, DeviceStream& stream);
  // Checks that a layer gives the rows of a class the bits of the last layer that Check was called
  // with, which has passed.
  absl::Status CheckSame(const DenseLayer& layer, const RowClass& rows, DeviceStream& stream);

 private:
  RowCheck::Run RunOf(const DenseLayer& layer) const;
  // Returns the rows of x, [most rows, k].
  absl::StatusOr<std::vector<int8_t>> DrawX();
  // Computes the expected outputs of the first rows of `x`.
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
