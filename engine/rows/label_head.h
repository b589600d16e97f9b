// Maps the states of the labels of a row to the vectors that a SpanHead multiplies with parts.
//   projection   y = dense(x), two layers with ReLU between them
//   recurrent    h = step(x), y = dense([h, x])
//   attention    h = step(x) + x
//                n = narrow(h), and twice: n = norm(n + attention(n)), n = norm(n + mlp(n))
//                y = dense([n, h]), three layers with ReLU between them
// `step` is one step of a gated recurrent unit (torch.nn.GRU). Its state is x, and its input is the
// same in each call, so the checkpoint has the input's part of the gates. Attention is over the
// labels of the row, with kLabelAttentionHeads heads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/serving_config.h"
#include "engine/rows/host_layers.h"

namespace sluice {

// Immutable; thread-safe.
class LabelHead {
 public:
  // Packs the weights. `layers` must outlive the head.
  LabelHead(LabelHeadKind kind, const SpanWeights::Labels& weights, const HostLayers& layers);

  // Returns the vectors of labels from their states, both [labels, width].
  Floats Apply(std::span<const float> states) const;

 private:
  struct Norm {
    Floats weight, bias;
  };
  struct AttentionLayer {
    HostLayers::Layer qkv, o;
    HostLayers::Projection mlp;
    Norm attention_norm, mlp_norm;
  };

  // Adds `more` to the rows and normalises them.
  static void AddAndNormalize(std::span<const float> more, const Norm& norm, Floats* rows);
  Floats Step(std::span<const float> states) const;
  Floats Attend(const AttentionLayer& layer, std::span<const float> rows) const;

  const LabelHeadKind kind_;
  const HostLayers& layers_;
  HostLayers::Projection projection_;
  Floats input_;
  HostLayers::Layer state_, narrow_;
  std::vector<AttentionLayer> attention_;
  std::array<HostLayers::Layer, 3> dense_;
};

}  // namespace sluice
