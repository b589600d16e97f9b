// Finds the scales of features that can move from the rows that enter projections into the weights
// before them, as in SmoothQuant (arXiv 2211.10438). The model's outputs do not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/model/model.h"

namespace sluice::verify {

// The projections that read one value, and those of other layers that share their tensors. Their
// indices are the indices of LinearOps in the graph.
struct SmoothingGroup {
  // The op that makes the value and takes the inverse scales: the weight and the bias of a norm, or
  // rows of the projection `up` of a gated MLP, or rows of the values that attention sums.
  enum class Producer { kNone, kNorm, kUp, kValue };

  std::vector<size_t> readers;
  Producer producer = Producer::kNone;  // kNone if another op also reads the value
  size_t producer_op = 0;               // a NormOp or a LinearOp
  int64_t width = 0;                    // features of the value
  // Returns the producer's feature that makes a feature of the value. The query heads of a KV head
  // share its values.
  int64_t FeatureOf(int64_t feature) const {
    return feature / (head_dim * group) * head_dim + feature % head_dim;
  }
  int64_t head_dim = 1;
  int64_t group = 1;
};

// Returns the groups of all projections. Each projection is in one group. Position-wise projections
// also take scales. A tensor that an op outside the group also reads is never changed.
std::vector<SmoothingGroup> FindSmoothingGroups(const Model& model);

}  // namespace sluice::verify
