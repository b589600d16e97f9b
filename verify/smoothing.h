// This header finds the scales of features that can move from the rows that enter projections into
// the weights before them, as SmoothQuant does (arXiv 2211.10438), without a change of what the
// model computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/model/model.h"

namespace sluice::verify {

// The projections that read one value. Their indices are those of LinearOps of the graph.
struct SmoothingGroup {
  // What makes the value, and takes the inverse scales: the weight and the bias of a norm; the rows
  // of the projection `up` of a gated MLP, or of the values that attention sums.
  enum class Producer { kNone, kNorm, kUp, kValue };

  std::vector<size_t> readers;
  Producer producer = Producer::kNone;  // kNone if something else reads the value, too
  size_t producer_op = 0;               // a NormOp or a LinearOp
  int64_t width = 0;                    // features of the value
  // Returns the feature of the producer that a feature of the value is made of. The heads of a KV
  // head share its values.
  int64_t FeatureOf(int64_t feature) const {
    return feature / (head_dim * group) * head_dim + feature % head_dim;
  }
  int64_t head_dim = 1;
  int64_t group = 1;
};

// Returns the groups of all projections, each in one of them. Position-wise projections take
// scales, too. A tensor that an op outside the group reads as well is never changed.
std::vector<SmoothingGroup> FindSmoothingGroups(const Model& model);

}  // namespace sluice::verify
