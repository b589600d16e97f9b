// A trial of whether an algorithm of the vendor's library computes a layer as the engine requires.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/device.h"
#include "engine/cuda/row_check.h"

namespace sluice {

// Returns the batches of a trial of a shape. The first batch has the most rows. The others have its
// last rows, in every number that a layer may compute, so each row is tried at several places.
std::vector<std::vector<int32_t>> DenseBatches(const DenseShape& shape);
// Returns the numbers of the batches, except for the first, that an algorithm of a class of rows
// must pass: each tried number of rows of the class, and one beyond each edge.
std::vector<size_t> BatchesOfClass(const std::vector<std::vector<int32_t>>& batches,
                                   const RowClass& rows);

// The inputs and expected outputs of a RowCheck for the layers of one shape. The library's promise
// about the bits of a row is weaker than our own, so each layer is tried with all numbers of rows
// that it may compute (TriedRows). The error of a row is at most k 2^-24 sum|w|, the worst case of
// float sums of |x| <= 1. If out is bfloat16, 2^-7 of the sum before f is added, which allows for
// rounding twice; if it is float, 2^-16.
class DenseCheck {
 public:
  // Layers are tried with `weight` [k, n] and `bias` on the device, which outlive this.
  DenseCheck(const DenseShape& shape, const void* weight, const void* bias)
      : shape_(shape), weight_(weight), bias_(bias) {}

  absl::Status Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes);
  // Returns FailedPrecondition with the fault if the layer fails; other errors come from the
  // device.
  absl::Status Check(const DenseLayer& layer, DeviceStream& stream);
  // Checks that a layer gives the rows of a class the bits of the last layer that Check was called
  // with, which has passed.
  absl::Status CheckSame(const DenseLayer& layer, const RowClass& rows, DeviceStream& stream);

 private:
  RowCheck::Run RunOf(const DenseLayer& layer) const;
  template <typename T>
  absl::Status PrepareAs(Device& device);
  RowCheckSpec Spec(const ExactProducts& products) const;

  const DenseShape shape_;
  const void* const weight_;
  const void* const bias_;
  size_t workspace_bytes_ = 0;
  std::optional<CheckInputs> inputs_;
  const void* x_ = nullptr;  // [most rows, k]
  void* workspace_ = nullptr;
  std::optional<RowCheck> check_;
};

}  // namespace sluice
