// The weights of the head that finds labelled parts of a text (ExtractionConfig). They are in the
// model's checkpoint. With the width d:
//   span_head.projection              [d, hidden], only if the model's states have another width
//   span_head.lstm.weight_ih_lN, ..   the names of torch.nn.LSTM, in both directions, d / 2 each
//   span_head.{start,end,label}.0     [4 d, d]
//   span_head.{start,end,label}.3     [d, 4 d]
//   span_head.span.0                  [4 d, 2 d]
//   span_head.span.3                  [d, 4 d]
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"

namespace sluice {

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

  // Requires that `config` has an ExtractionConfig. Errors name the tensor.
  static absl::StatusOr<SpanWeights> Find(const ModelConfig& config, const Checkpoint& checkpoint);

  std::optional<Linear> projection;
  std::vector<std::array<Lstm, 2>> lstm;  // per layer: forwards and backwards
  Projection start, end, label, span;
};

}  // namespace sluice
