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
// float, 2^-16. An activation, a gate and the layer of a gate propagate the error.
template <typename T>
class ProductCheck {
 public:
  // Candidates are tried with `weight` [matrices, k, n], in the layout that they read, and
  // `bias` on the device, which outlive this; `bias` is nullptr, [n], or [matrices, n]. `gate` is
  // used if the shape has the layer of a gate.
  ProductCheck(const GroupedProductShape& shape, const T* weight, const T* bias,
               const GateWeights<T>& gate = {})
      : shape_(shape), weight_(weight), bias_(bias), gate_(gate) {}

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
  // The weights in the layout of a candidate.
  struct Weights {
    const T* weight;
    const T* gate;  // nullptr if there is none
  };
  void Run(const GroupedProductCandidate<T>& candidate, kernels::cuda::Stream& stream,
           const Batch& batch, const Weights& weights, T* out) const;
  absl::StatusOr<Weights> Packed(kernels::cuda::WeightLayout layout, DeviceStream& stream);
  absl::StatusOr<const T*> Pack(const T* weight, kernels::cuda::WeightLayout layout,
                                DeviceStream& stream);
  // Returns the bias of a position, or nullptr.
  const T* BiasAt(const T* bias, int64_t position) const {
    return bias == nullptr || !shape_.position_bias ? bias : bias + position * shape_.n;
  }

  const GroupedProductShape shape_;
  const T* const weight_;
  const T* const bias_;
  const GateWeights<T> gate_;
  std::map<kernels::cuda::WeightLayout, Weights>
      packed_;              // made for the first candidate with this layout
  int32_t processors_ = 1;  // of the device
  std::vector<Row> rows_;
  std::vector<Batch> batches_;
  std::map<int32_t, Batch> timed_;  // by the number of rows
  T* timed_out_ = nullptr;
  T* gate_out_ = nullptr;  // of the layer of the gate, in any batch
  std::optional<CheckInputs> inputs_;
  std::optional<RowCheck> check_;
};

}  // namespace sluice
