// The weights of the head that finds labelled parts of a text (ExtractionConfig). They are in the
// model's checkpoint, without the weights of an encoder of labels. With the width d:
//   span_head.projection              [d, hidden], only if the model's states have another width
//   span_head.lstm.weight_ih_lN, ..   the names of torch.nn.LSTM, in both directions, d / 2 each
//   span_head.{start,end}.0           [4 d, d]
//   span_head.{start,end}.3           [d, 4 d]
//   span_head.span.0                  [4 d, 2 d]
//   span_head.span.3                  [d, 4 d]
//   span_head.gate.0, .3              [2 d, d], [classes, 2 d], only with a gate
// and for the kinds of a head of labels (engine/rows/label_head.h), with a = kLabelAttentionWidth:
//   projection   span_head.label.0, .3             [4 d, d], [d, 4 d]
//   recurrent    span_head.label.input, .state     [3 d], [3 d, d]
//                span_head.label.0, .3             [4 d, 2 d], [d, 4 d]
//   attention    span_head.label.input, .state     [3 d], [3 d, d]
//                span_head.label.narrow            [a, d]
//                span_head.label.layers.N.{qkv,o,up,down}
//                                                  [3 a, a], [a, a], [2 a, a], [a, 2 a]
//                span_head.label.layers.N.{attention_norm,mlp_norm}.{weight,bias}   [a]
//                span_head.label.{0,1,2}           [d, a + d], [d, d], [d, d]
// Matrices have the ending .weight and a .bias.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"

namespace sluice {

inline constexpr int64_t kLabelAttentionWidth = 128;
inline constexpr int64_t kLabelAttentionHeads = 4;
inline constexpr int64_t kLabelAttentionLayers = 2;
// The classes of a gate: the text has no parts, or it has 1 and more.
inline constexpr int64_t kGateClasses = 20;

struct SpanWeights {
  struct Linear {
    Tensor weight, bias;  // [out, in], [out]
  };
  // Two layers with ReLU between them.
  struct Projection {
    Linear in, out;
  };
  struct Lstm {
    Linear input, state;
  };
  struct AttentionLayer {
    Linear qkv, o, up, down;
    Linear attention_norm, mlp_norm;  // vectors
  };
  struct Labels {
    Projection projection;  // not of kAttention
    Tensor input;           // of the recurrent step, if there is one
    Linear state;           // the same
    Linear narrow;          // of kAttention, as all that follows
    std::vector<AttentionLayer> layers;
    std::array<Linear, 3> dense;
  };

  // Requires that `config` has an ExtractionConfig. Errors name the tensor.
  static absl::StatusOr<SpanWeights> Find(const ModelConfig& config, const Checkpoint& checkpoint);

  std::optional<Linear> projection;
  std::vector<std::array<Lstm, 2>> lstm;  // per layer: forwards and backwards
  Projection start, end, span;
  Labels label;
  std::optional<Projection> gate;
};

}  // namespace sluice
