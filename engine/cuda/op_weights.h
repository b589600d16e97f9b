// The weights that the ops of a graph read, on the device.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "engine/cuda/device_weights.h"
#include "engine/model/model.h"

namespace sluice {

// The cosines and sines of positions.
struct DeviceRope {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int32_t dims = 0;
};

// Loads weights op by op. Weights that several ops share are loaded once.
class OpWeights {
 public:
  // The arguments outlive this. `graph` is the model's graph with joined projections.
  OpWeights(const Model& model, const Graph& graph, DeviceWeights& weights)
      : model_(model), graph_(graph), weights_(weights) {}

  // Returns the matrices [matrices, in, out] of a layer.
  template <typename T>
  absl::StatusOr<const T*> Weight(const LinearOp& op);
  // Returns the bias of a layer, or nullptr if it has none.
  template <typename T>
  absl::StatusOr<const T*> Bias(const LinearOp& op);
  // Returns the matrices of a layer in int8. Requires that the layer is multiplied in int8
  // (PrecisionOf).
  absl::StatusOr<Int8Weight> Int8(const LinearOp& op);

  // Returns the gates of XSA, or nullptr if the op has none.
  absl::StatusOr<const float*> Gates(const AttentionOp& op);
  // Returns the bias by distance, which all layers share; nullptr if the op has none.
  absl::StatusOr<const float*> RelativeBias(const AttentionOp& op);
  // Returns the table of positions' cosines and sines that the op reads.
  absl::StatusOr<DeviceRope> Rope(const RopeStoreOp& op);

 private:
  int64_t In(const LinearOp& op) const { return graph_.buffers[op.in].width; }
  int64_t Out(const LinearOp& op) const { return graph_.buffers[op.out].width; }
  // Returns the tensors of a joined layer: its weights or its biases.
  std::vector<DeviceWeights::Columns> ColumnsOf(const LinearOp& op,
                                                TensorPart LinearOp::*first) const;

  const Model& model_;
  const Graph& graph_;
  DeviceWeights& weights_;
  std::array<DeviceRope, CountEnumerators<RopeUse>()> rope_;  // by RopeUse
  const float* bias_ = nullptr;
};

// Returns the number of elements from the start of the part.
int64_t ElementsOf(const TensorPart& part);

}  // namespace sluice
