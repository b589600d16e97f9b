#include "engine/cpu/int8_plan.h"

#include <algorithm>
#include <variant>

namespace sluice {
namespace {

// Returns whether the op writes the whole rows of `buffer` one after another.
bool CanQuantize(const GraphOp& op, BufferId buffer, const Graph& graph) {
  if (const auto* norm = std::get_if<NormOp>(&op)) {
    return norm->out == buffer && norm->width == graph.buffers[buffer].width;
  }
  const auto* const activation = std::get_if<ActivationOp>(&op);
  return activation != nullptr && activation->out == buffer;
}

bool IsQuantized(const Model& model, const LinearOp& op) {
  return PrecisionOf(model, op).quantization != Quantization::kNone;
}

}  // namespace

std::vector<bool> PlanQuantization(const Model& model) {
  const std::vector<GraphOp>& ops = model.graph.ops;
  std::vector<bool> quantizes(ops.size(), false);
  BufferId quantized = kNoBuffer;  // the buffer whose rows are quantised at this point
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto* const linear = std::get_if<LinearOp>(&ops[i]);
    if (linear != nullptr && IsQuantized(model, *linear) && linear->in != quantized) {
      const bool before = i > 0 && CanQuantize(ops[i - 1], linear->in, model.graph);
      quantizes[before ? i - 1 : i] = true;
      quantized = linear->in;
    }
    if (quantized != kNoBuffer && WrittenBuffer(ops[i]) == quantized) {
      quantized = kNoBuffer;
    }
  }
  return quantizes;
}

int64_t WidestQuantizedRow(const Model& model) {
  int64_t widest = 0;
  for (const GraphOp& op : model.graph.ops) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    if (linear == nullptr || !IsQuantized(model, *linear)) continue;
    widest = std::max(widest, model.graph.buffers[linear->in].width);
  }
  return widest;
}

}  // namespace sluice
