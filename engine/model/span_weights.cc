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

// Requires that `width` is the width of the head, and `in` the width of the projected states.
absl::Status FindProjection(const Checkpoint& checkpoint, const std::string& name, int64_t in,
                            int64_t width, SpanWeights::Projection* projection) {
  const std::string module = absl::StrCat("span_head.", name);
  SLUICE_ASSIGN_OR_RETURN(projection->in,
                          FindModule(checkpoint, absl::StrCat(module, ".0"), 4 * width, in));
  SLUICE_ASSIGN_OR_RETURN(projection->out,
                          FindModule(checkpoint, absl::StrCat(module, ".3"), width, 4 * width));
  return absl::OkStatus();
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
  const auto find = [&](const char* name, int64_t in, Projection* projection) {
    return FindProjection(checkpoint, name, in, head.width, projection);
  };
  SLUICE_RETURN_IF_ERROR(find("start", head.width, &weights.start));
  SLUICE_RETURN_IF_ERROR(find("end", head.width, &weights.end));
  SLUICE_RETURN_IF_ERROR(find("label", head.width, &weights.label));
  SLUICE_RETURN_IF_ERROR(find("span", 2 * head.width, &weights.span));
  return weights;
}

}  // namespace sluice
