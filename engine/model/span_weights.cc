#include "engine/model/span_weights.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

using Linear = SpanWeights::Linear;

absl::StatusOr<Linear> FindLinear(const Checkpoint& checkpoint, const std::string& weight,
                                  const std::string& bias, int64_t rows, int64_t width) {
  Linear linear;
  SLUICE_ASSIGN_OR_RETURN(linear.weight, checkpoint.Find(weight, {rows, width}));
  SLUICE_ASSIGN_OR_RETURN(linear.bias, checkpoint.Find(bias, {rows}));
  return linear;
}

absl::StatusOr<Linear> FindModule(const Checkpoint& checkpoint, const std::string& module,
                                  int64_t rows, int64_t width) {
  return FindLinear(checkpoint, absl::StrCat(module, ".weight"), absl::StrCat(module, ".bias"),
                    rows, width);
}

// The widths before, between and after the layers of a projection.
struct Widths {
  int64_t in, inner, out;
};

absl::StatusOr<SpanWeights::Projection> FindProjection(const Checkpoint& checkpoint,
                                                       const std::string& name,
                                                       const Widths& widths) {
  const std::string module = absl::StrCat("span_head.", name);
  SpanWeights::Projection projection;
  SLUICE_ASSIGN_OR_RETURN(
      projection.in, FindModule(checkpoint, absl::StrCat(module, ".0"), widths.inner, widths.in));
  SLUICE_ASSIGN_OR_RETURN(
      projection.out, FindModule(checkpoint, absl::StrCat(module, ".3"), widths.out, widths.inner));
  return projection;
}

absl::StatusOr<Linear> FindNorm(const Checkpoint& checkpoint, const std::string& module) {
  Linear norm;
  const std::vector<int64_t> shape = {kLabelAttentionWidth};
  SLUICE_ASSIGN_OR_RETURN(norm.weight, checkpoint.Find(absl::StrCat(module, ".weight"), shape));
  SLUICE_ASSIGN_OR_RETURN(norm.bias, checkpoint.Find(absl::StrCat(module, ".bias"), shape));
  return norm;
}

absl::StatusOr<SpanWeights::AttentionLayer> FindLayer(const Checkpoint& checkpoint, int64_t layer) {
  constexpr int64_t kWidth = kLabelAttentionWidth;
  const std::string module = absl::StrCat("span_head.label.layers.", layer, ".");
  const auto find = [&](const char* name, int64_t rows, int64_t width) {
    return FindModule(checkpoint, module + name, rows, width);
  };
  SpanWeights::AttentionLayer found;
  SLUICE_ASSIGN_OR_RETURN(found.qkv, find("qkv", 3 * kWidth, kWidth));
  SLUICE_ASSIGN_OR_RETURN(found.o, find("o", kWidth, kWidth));
  SLUICE_ASSIGN_OR_RETURN(found.up, find("up", 2 * kWidth, kWidth));
  SLUICE_ASSIGN_OR_RETURN(found.down, find("down", kWidth, 2 * kWidth));
  SLUICE_ASSIGN_OR_RETURN(found.attention_norm, FindNorm(checkpoint, module + "attention_norm"));
  SLUICE_ASSIGN_OR_RETURN(found.mlp_norm, FindNorm(checkpoint, module + "mlp_norm"));
  return found;
}

// Finds the layers between the states of the labels, of this width, and their products with parts.
absl::StatusOr<SpanWeights::Labels> FindLabels(const Checkpoint& checkpoint, LabelHeadKind kind,
                                               int64_t width) {
  SpanWeights::Labels labels;
  if (kind == LabelHeadKind::kProjection) {
    SLUICE_ASSIGN_OR_RETURN(labels.projection,
                            FindProjection(checkpoint, "label", {width, 4 * width, width}));
    return labels;
  }
  SLUICE_ASSIGN_OR_RETURN(labels.input, checkpoint.Find("span_head.label.input", {3 * width}));
  SLUICE_ASSIGN_OR_RETURN(labels.state,
                          FindModule(checkpoint, "span_head.label.state", 3 * width, width));
  if (kind == LabelHeadKind::kRecurrent) {
    SLUICE_ASSIGN_OR_RETURN(labels.projection,
                            FindProjection(checkpoint, "label", {2 * width, 4 * width, width}));
    return labels;
  }
  SLUICE_ASSIGN_OR_RETURN(
      labels.narrow, FindModule(checkpoint, "span_head.label.narrow", kLabelAttentionWidth, width));
  for (int64_t layer = 0; layer < kLabelAttentionLayers; ++layer) {
    SLUICE_ASSIGN_OR_RETURN(labels.layers.emplace_back(), FindLayer(checkpoint, layer));
  }
  for (size_t i = 0; i < labels.dense.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(labels.dense[i],
                            FindModule(checkpoint, absl::StrCat("span_head.label.", i), width,
                                       i == 0 ? kLabelAttentionWidth + width : width));
  }
  return labels;
}

absl::StatusOr<SpanWeights::Lstm> FindLstm(const Checkpoint& checkpoint, int64_t width,
                                           const std::string& ending) {
  const auto find = [&](const char* of, int64_t in) {
    return FindLinear(checkpoint, absl::StrCat("span_head.lstm.weight_", of, ending),
                      absl::StrCat("span_head.lstm.bias_", of, ending), 2 * width, in);
  };
  SpanWeights::Lstm lstm;
  SLUICE_ASSIGN_OR_RETURN(lstm.input, find("ih", width));
  SLUICE_ASSIGN_OR_RETURN(lstm.state, find("hh", width / 2));
  return lstm;
}

}  // namespace

absl::StatusOr<SpanWeights> SpanWeights::Find(const ModelConfig& config,
                                              const Checkpoint& checkpoint) {
  const ExtractionConfig& head = *config.serving.extraction;
  SpanWeights weights;
  if (head.width != config.hidden_size) {
    SLUICE_ASSIGN_OR_RETURN(weights.projection, FindModule(checkpoint, "span_head.projection",
                                                           head.width, config.hidden_size));
  }
  for (int64_t layer = 0; layer < head.lstm_layers; ++layer) {
    auto& directions = weights.lstm.emplace_back();
    const std::string ending = absl::StrCat("_l", layer);
    SLUICE_ASSIGN_OR_RETURN(directions[0], FindLstm(checkpoint, head.width, ending));
    SLUICE_ASSIGN_OR_RETURN(directions[1],
                            FindLstm(checkpoint, head.width, absl::StrCat(ending, "_reverse")));
  }
  const auto find = [&](const char* name, int64_t in) {
    return FindProjection(checkpoint, name, {in, 4 * head.width, head.width});
  };
  SLUICE_ASSIGN_OR_RETURN(weights.start, find("start", head.width));
  SLUICE_ASSIGN_OR_RETURN(weights.end, find("end", head.width));
  SLUICE_ASSIGN_OR_RETURN(weights.span, find("span", 2 * head.width));
  SLUICE_ASSIGN_OR_RETURN(weights.label, FindLabels(checkpoint, head.label_head, head.width));
  if (!head.gate.empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        weights.gate,
        FindProjection(checkpoint, "gate", {head.width, 2 * head.width, kGateClasses}));
  }
  return weights;
}

}  // namespace sluice
