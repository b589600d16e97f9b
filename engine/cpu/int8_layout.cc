#include "engine/cpu/int8_layout.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "engine/model/kept_channels.h"
#include "kernels/cpu/quantized_rows.h"

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

// Returns 0 for the channels and 1 for the others, or nothing if there are none.
std::vector<float> FactorsOf(const std::vector<int32_t>& channels, int64_t width) {
  if (channels.empty()) return {};
  std::vector<float> factors(width, 1.0f);
  for (const int32_t channel : channels) factors[channel] = 0;
  return factors;
}

}  // namespace

std::vector<RowQuantization> QuantizationOfOps(const Model& model) {
  const std::vector<GraphOp>& ops = model.graph.ops;
  std::vector<RowQuantization> plan(ops.size());
  BufferId quantized = kNoBuffer;              // the buffer whose rows are quantised at this point
  Quantization weights = Quantization::kNone;  // of the layers that read them
  std::vector<int32_t> without;                // the channels that are left out
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto* const linear = std::get_if<LinearOp>(&ops[i]);
    const Quantization wanted =
        linear == nullptr ? Quantization::kNone : PrecisionOf(model, *linear).quantization;
    if (wanted != Quantization::kNone) {
      std::vector<int32_t> kept = KeptChannelsOf(model, *linear);
      if (linear->in != quantized || wanted != weights || kept != without) {
        const bool before = i > 0 && CanQuantize(ops[i - 1], linear->in, model.graph);
        plan[before ? i - 1 : i] = {
            .weights = wanted, .factors = FactorsOf(kept, model.graph.buffers[linear->in].width)};
        quantized = linear->in;
        weights = wanted;
        without = std::move(kept);
      }
    }
    if (quantized != kNoBuffer && WrittenBuffer(ops[i]) == quantized) {
      quantized = kNoBuffer;
    }
  }
  return plan;
}

int64_t QuantizedRowBytes(const Model& model, kernels::Profile profile, int64_t tokens) {
  int64_t most = 0;
  for (const GraphOp& op : model.graph.ops) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    if (linear == nullptr) continue;
    const Quantization quantization = PrecisionOf(model, *linear).quantization;
    if (quantization == Quantization::kNone) continue;
    const GraphBuffer& in = model.graph.buffers[linear->in];
    most = std::max(most, kernels::QuantizedRows::Bytes(profile, tokens * in.rows, in.width,
                                                        quantization == Quantization::kInt4));
  }
  return most;
}

}  // namespace sluice
