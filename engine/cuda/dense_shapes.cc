#include "engine/cuda/dense_shapes.h"

#include <variant>

#include "engine/cuda/joined_graph.h"
#include "kernels/cuda/int8.h"

namespace sluice {
namespace {

int32_t Width(const Graph& graph, BufferId id) { return graph.buffers[id].width; }

}  // namespace

const ActivationOp* ActivationOf(const GraphOp* next, BufferId buffer) {
  const auto* op = next == nullptr ? nullptr : std::get_if<ActivationOp>(next);
  if (op == nullptr || op->out != buffer) return nullptr;
  const bool alone = op->in == buffer && op->up == kNoBuffer;
  const bool gated = op->in != buffer && op->up == buffer;
  return alone || gated ? op : nullptr;
}

std::optional<DenseShape> ShapeOf(const Graph& graph, const LinearOp& op, DenseType type) {
  if (!op.one_matrix() || op.routes) return std::nullopt;
  const int32_t k = Width(graph, op.in), n = Width(graph, op.out);
  if (type == DenseType::kInt8) {
    return DenseShape{.k = kernels::cuda::Int8Stride(k),
                      .n = n,
                      .type = type,
                      .bias = false,
                      .accumulate = false};
  }
  return DenseShape{
      .k = k, .n = n, .type = type, .bias = op.bias.present(), .accumulate = op.accumulate};
}

std::optional<DenseShape> WithActivation(const DenseShape& shape, const ActivationOp* then) {
  if (then == nullptr || then->in != then->out || shape.accumulate) return std::nullopt;
  DenseShape whole = shape;
  if (then->activation == Activation::kRelu) {
    whole.activation = DenseActivation::kRelu;
  } else if (then->activation == Activation::kGeluTanh) {
    whole.activation = DenseActivation::kGeluTanh;
  } else {
    return std::nullopt;
  }
  return whole;
}

std::optional<DenseShape> ShapeOf(const Graph& graph, const HeadOp& op, int64_t vocab,
                                  DenseType type) {
  if (op.bias.present()) return std::nullopt;
  return DenseShape{.k = Width(graph, op.in),
                    .n = PaddedVocab(vocab),
                    .type = type,
                    .bias = false,
                    .accumulate = false,
                    .head = true};
}

std::set<DenseShape> DenseShapesOf(const Graph& of_model, int64_t vocab, DenseType type) {
  const Graph graph = JoinProjections(of_model, /*gates=*/true);
  std::set<DenseShape> shapes;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const GraphOp* const next = i + 1 < graph.ops.size() ? &graph.ops[i + 1] : nullptr;
    std::optional<DenseShape> shape;
    if (const auto* linear = std::get_if<LinearOp>(&graph.ops[i])) {
      shape = ShapeOf(graph, *linear, type);
      if (!shape) continue;
      if (const auto whole = WithActivation(*shape, ActivationOf(next, linear->out))) {
        shapes.insert(*whole);
      }
    } else if (const auto* head = std::get_if<HeadOp>(&graph.ops[i])) {
      shape = ShapeOf(graph, *head, vocab, type);
    }
    if (shape) shapes.insert(*shape);
  }
  return shapes;
}

}  // namespace sluice
