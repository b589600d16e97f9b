// The shapes of a graph's dense layers for the library of the vendor.
#pragma once

#include <optional>
#include <set>

#include "engine/cuda/dense_layer.h"
#include "engine/model/graph.h"

namespace sluice {

// Returns `next` if it is an activation of `buffer` in place, or with a gate in another buffer, so
// that the op that writes `buffer` may apply it. Returns nullptr otherwise; `next` may be nullptr.
const ActivationOp* ActivationOf(const GraphOp* next, BufferId buffer);

// Returns the shape of a layer that is computed in `type`. Returns nullopt for routers, and if
// matrices or biases differ by position or expert; our kernel computes such layers.
std::optional<DenseShape> ShapeOf(const Graph& graph, const LinearOp& op, DenseType type);
// Returns the shape with the activation `then` after the layer. Returns nullopt if the library
// lacks it, or would apply it to only a part of the sum.
std::optional<DenseShape> WithActivation(const DenseShape& shape, const ActivationOp* then);
// Returns the columns of logits in memory, rounded up to align their rows and the rows of the
// weights. Columns after the vocabulary have zero weights.
constexpr int32_t PaddedVocab(int64_t vocab) { return static_cast<int32_t>((vocab + 7) / 8 * 8); }

// Returns nullopt if there is a bias, because its type differs from the type of the logits; our
// kernel then computes the head.
std::optional<DenseShape> ShapeOf(const Graph& graph, const HeadOp& op, int64_t vocab,
                                  DenseType type);

// Returns every shape in `type` that lowering a model may request.
std::set<DenseShape> DenseShapesOf(const Graph& graph, int64_t vocab, DenseType type);

}  // namespace sluice
