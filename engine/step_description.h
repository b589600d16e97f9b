// What a step of a served model computes: the data of `sluice plan`, which makes the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention_variant.h"
#include "engine/model/model.h"

namespace sluice {

// A step of sequences of equal `context`, of which each computes its last `tokens`. In a request, 0
// stands for the default of CompleteStep.
struct StepSizes {
  int64_t sequences = 0;  // 1
  int64_t tokens = 0;     // 1, or the context if attention is in both directions
  int64_t context = 0;    // 4096, or the model's longest sequence if that is less

  bool operator==(const StepSizes&) const = default;
};

struct StepDescription {
  std::shared_ptr<const Model> model;
  StepSizes step;
  AttentionVariant attention{AttentionVariant::Kind::kOnePass};  // not kAuto
  std::string attention_reason = {};                             // in a sentence
  // Of each op of the graph: the bytes of a value of its weights, see WeightBytes.
  std::vector<double> weight_bytes = {};
  // Of each op of the graph: its measured time in a step. Empty if nothing was measured.
  std::vector<double> seconds = {};
};

// Replaces zeros by defaults. Returns InvalidArgument for sizes that the model cannot take.
absl::StatusOr<StepSizes> CompleteStep(const ModelConfig& config, StepSizes step);

// Returns the bytes of a value of each op's weights as backends keep them: 1 in int8; in int4 a
// half and the value's part of its group's scale and zero point; 2 for bf16; a table has those of
// its dtype, and all else is f32. Without a checkpoint the config's dtype decides.
std::vector<double> WeightBytes(const Model& model);

}  // namespace sluice
