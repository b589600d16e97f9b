#include "engine/cuda/gated_layers.h"

#include <algorithm>
#include <variant>

#include "engine/cuda/dense_shapes.h"

namespace sluice {
namespace {

// Returns whether an op reads a buffer other than as the input of a gated activation that follows
// the layer of its other input.
struct ReadsOtherwise {
  BufferId buffer;

  bool operator()(const EmbedOp&) const { return false; }
  bool operator()(const InputOp&) const { return false; }
  bool operator()(const NormOp& op) const { return op.in == buffer; }
  bool operator()(const LinearOp& op) const {
    return op.in == buffer || (op.accumulate && op.out == buffer);
  }
  bool operator()(const RouteOp& op) const { return op.logits == buffer || op.in == buffer; }
  bool operator()(const CombineOp& op) const {
    return op.in == buffer || (op.accumulate && op.out == buffer);
  }
  bool operator()(const RopeStoreOp& op) const {
    return op.q == buffer || op.k == buffer || op.v == buffer;
  }
  bool operator()(const AttentionOp& op) const { return op.q == buffer; }
  bool operator()(const ExchangeOp& op) const { return op.in == buffer; }
  bool operator()(const ActivationOp& op) const {
    return op.up == buffer || (op.in == buffer && op.up == kNoBuffer);
  }
  bool operator()(const MixOp& op) const { return op.a == buffer || op.b == buffer; }
  bool operator()(const HeadOp& op) const { return op.in == buffer; }
};

}  // namespace

std::optional<GatedLayers> GatedLayersAt(const Graph& graph, size_t first) {
  if (first + 2 >= graph.ops.size()) return std::nullopt;
  const auto* const gate = std::get_if<LinearOp>(&graph.ops[first]);
  const auto* const up = std::get_if<LinearOp>(&graph.ops[first + 1]);
  if (gate == nullptr || up == nullptr) return std::nullopt;
  const ActivationOp* const then = ActivationOf(&graph.ops[first + 2], up->out);
  if (then == nullptr || then->in != gate->out || then->up != up->out) return std::nullopt;
  const auto width = [&](BufferId id) { return graph.buffers[id].width; };
  const bool alike = gate->in == up->in && gate->index == up->index &&
                     gate->matrices == up->matrices && width(gate->out) == width(up->out);
  if (!alike || gate->accumulate || up->accumulate) return std::nullopt;
  if (gate->out == gate->in || up->out == up->in) return std::nullopt;
  const bool read = std::ranges::any_of(
      graph.ops, [&](const GraphOp& op) { return std::visit(ReadsOtherwise{gate->out}, op); });
  const auto is_state = [&](BufferId id) {
    return id == graph.output || id == graph.trunk || id == graph.head_input;
  };
  if (read || is_state(gate->out)) return std::nullopt;
  return GatedLayers{*gate, *up, *then};
}

}  // namespace sluice
