// Inputs and expected outputs for the trial of candidates for a grouped product.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/kernel_candidates.h"
#include "engine/cuda/row_check.h"
#include "kernels/cuda/row_tiles.h"

namespace sluice {

// A candidate is tried with rows of up to three positions, in batches that differ in number, places
// and neighbours. The error of a sum is at most k 2^-24 sum|w|, the worst case of float sums of |x|
// <= 1. If outputs are bfloat16, 2^-7 of it is added, which allows for rounding twice; if they are
// float, 2^-16. An activation and a gate propagate the error.
template <typename T>
class ProductCheck {
 public:
  // Candidates are tried with `weight` [matrices, k, n], in the layout that they read, and
  // `bias` on the device, which outlive this; `bias` is nullptr, [n], or [matrices, n].
  ProductCheck(const GroupedProductShape& shape, const T* weight, const T* bias)
      : shape_(shape), weight_(weight), bias_(bias) {}

  absl::Status Prepare(Device& device, DeviceStream& stream);
  // Returns FailedPrecondition with the fault if the candidate fails; other errors come from the
  // device.
  absl::Status Check(const GroupedProductCandidate<T>& candidate, DeviceStream& stream);
  // Returns the seconds that a candidate takes for `rows` rows, one of kTimedRows.
  absl::StatusOr<double> SecondsOf(const GroupedProductCandidate<T>& candidate, int32_t rows,
                                   Device& device, DeviceStream& stream);

 private:
  static constexpr bool kHalf = sizeof(T) == 2;

  struct Row {
    int32_t position;
    bool compared;
    std::vector<T> x, gate;
  };
  struct Batch {
    const T* x = nullptr;
    const T* gate = nullptr;
    kernels::cuda::RowTiles tiles = {};
  };

  void DrawRows();
  RowCheckSpec Spec() const;
  absl::Status Expect(RowCheckSpec* spec);
  absl::Status PutBatch(const std::vector<int32_t>& rows);
  // Returns a batch with rows of these positions, in ascending order. row_at(i) has the values.
  absl::StatusOr<Batch> Put(const std::vector<int32_t>& positions,
                            absl::FunctionRef<const Row&(int32_t)> row_at);
  kernels::cuda::ProjectionArgs<T> ArgsOf(const Batch& batch, const T* weight, T* out) const;
  // Returns the weight in a layout.
  absl::StatusOr<const T*> Packed(kernels::cuda::WeightLayout layout, DeviceStream& stream);

  const GroupedProductShape shape_;
  const T* const weight_;
  const T* const bias_;
  std::map<kernels::cuda::WeightLayout, const T*>
      packed_;              // made for the first candidate with this layout
  int32_t processors_ = 1;  // of the device
  std::vector<Row> rows_;
  std::vector<Batch> batches_;
  std::map<int32_t, Batch> timed_;  // by the number of rows
  T* timed_out_ = nullptr;
  std::optional<CheckInputs> inputs_;
  std::optional<RowCheck> check_;
};

}  // namespace sluice
