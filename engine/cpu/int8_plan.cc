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

}  // namespace

std::vector<Quantization> PlanQuantization(const Model& model) {
  const std::vector<GraphOp>& ops = model.graph.ops;
  std::vector<Quantization> quantizes(ops.size(), Quantization::kNone);
  BufferId quantized = kNoBuffer;              // the buffer whose rows are quantised at this point
  Quantization weights = Quantization::kNone;  // those for which they are
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto* const linear = std::get_if<LinearOp>(&ops[i]);
    const Quantization wanted =
        linear == nullptr ? Quantization::kNone : PrecisionOf(model, *linear).quantization;
    if (wanted != Quantization::kNone && (linear->in != quantized || wanted != weights)) {
      const bool before = i > 0 && CanQuantize(ops[i - 1], linear->in, model.graph);
      quantizes[before ? i - 1 : i] = wanted;
      quantized = linear->in;
      weights = wanted;
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
    if (linear == nullptr || PrecisionOf(model, *linear).quantization == Quantization::kNone) {
      continue;
    }
    widest = std::max(widest, model.graph.buffers[linear->in].width);
  }
  return widest;
}

}  // namespace sluice
