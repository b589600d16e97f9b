#include "engine/step_description.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/model/rope.h"

namespace sluice {
namespace {

double WeightBytesOf(const GraphOp& op, const Model& model) {
  const auto stored = [&](const TensorPart& part, bool any_dtype) -> double {
    const auto tensor = model.checkpoint.tensors().find(part.name);
    if (tensor == model.checkpoint.tensors().end()) return model.config.stored_in_bf16 ? 2 : 4;
    const kernels::DType dtype = tensor->second.dtype;
    const bool kept = any_dtype || dtype == kernels::DType::kBF16;
    return kept ? static_cast<double>(kernels::DTypeBytes(dtype)) : 4;
  };
  const auto multiplied = [&](const auto& op_of_weights) -> double {
    const WeightPrecision precision = PrecisionOf(model, op_of_weights);
    switch (precision.quantization) {
      case Quantization::kNone:
        return stored(op_of_weights.weight, false);
      case Quantization::kInt8:
        return 1;
      case Quantization::kInt4:
        break;
    }
    const bool zeros = precision.stored && model.config.stored_quantization.zeros;
    return 0.5 + (sizeof(float) + (zeros ? 1 : 0)) / static_cast<double>(precision.group);
  };
  if (const auto* embed = std::get_if<EmbedOp>(&op)) return stored(embed->table, true);
  if (const auto* linear = std::get_if<LinearOp>(&op)) {
    return linear->routes ? 4 : multiplied(*linear);
  }
  if (const auto* head = std::get_if<HeadOp>(&op)) return multiplied(*head);
  return 4;
}

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

// Returns the number of weights that an op keeps, without norms and biases.
int64_t WeightsOf(const GraphOp& op, const Graph& graph) {
  if (const auto* embed = std::get_if<EmbedOp>(&op)) {
    return ElementsOf(embed->table.shape) - embed->table.first;
  }
  if (const auto* head = std::get_if<HeadOp>(&op)) return ElementsOf(head->weight.shape);
  const auto* const linear = std::get_if<LinearOp>(&op);
  if (linear == nullptr) return 0;
  const int64_t matrices = linear->position_wise() ? linear->weight.shape[0] : 1;
  return matrices * graph.buffers[linear->in].width * graph.buffers[linear->out].width;
}

// Returns the bytes of the tables of rotary positions. Layers of the same use share one.
int64_t RopeBytes(const Model& model) {
  std::set<RopeUse> uses;
  int64_t bytes = 0;
  for (const GraphOp& op : model.graph.ops) {
    const auto* const stored = std::get_if<RopeStoreOp>(&op);
    if (stored == nullptr || !uses.insert(stored->rope).second) continue;
    bytes += model.config.max_positions * FindRope(*stored, model.config).dims * kSizeOf<float>;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<StepSizes> CompleteStep(const ModelConfig& config, StepSizes step) {
  constexpr int64_t kDefaultContext = 4096;
  constexpr int64_t kMaxSequences = 65536;
  if (step.sequences == 0) step.sequences = 1;
  if (step.context == 0) step.context = std::min(kDefaultContext, config.max_positions);
  if (step.tokens == 0) step.tokens = config.causal ? 1 : step.context;
  const auto check = [](const char* name, int64_t size, int64_t least, int64_t most) {
    if (size >= least && size <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", size, ", must be in [", least, ", ", most, "]"));
  };
  SLUICE_RETURN_IF_ERROR(check("sequences", step.sequences, 1, kMaxSequences));
  SLUICE_RETURN_IF_ERROR(check("context", step.context, 1, config.max_positions));
  // Attention in both directions computes whole sequences.
  SLUICE_RETURN_IF_ERROR(
      check("tokens", step.tokens, config.causal ? 1 : step.context, step.context));
  return step;
}

std::vector<double> WeightBytes(const Model& model) {
  std::vector<double> bytes;
  bytes.reserve(model.graph.ops.size());
  for (const GraphOp& op : model.graph.ops) bytes.push_back(WeightBytesOf(op, model));
  return bytes;
}

bool MultipliesBf16Weights(const Model& model) {
  constexpr double kBf16Bytes = 2;  // no other weights of a product have this size
  return std::ranges::any_of(model.graph.ops, [&](const GraphOp& op) {
    const bool multiplies =
        std::holds_alternative<LinearOp>(op) || std::holds_alternative<HeadOp>(op);
    return multiplies && WeightBytesOf(op, model) == kBf16Bytes;
  });
}

int64_t EstimateWeightMemory(const Model& model) {
  double bytes = static_cast<double>(RopeBytes(model));
  for (const GraphOp& op : model.graph.ops) {
    bytes += static_cast<double>(WeightsOf(op, model.graph)) * WeightBytesOf(op, model);
  }
  return static_cast<int64_t>(std::ceil(bytes));
}

int64_t EstimateServedWeightMemory(const Model& model) {
  return EstimateWeightMemory(model) +
         (model.labels == nullptr ? 0 : EstimateWeightMemory(*model.labels));
}

}  // namespace sluice
