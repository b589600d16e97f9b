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

// Returns the shape of a layer that is computed in `type`; nullopt if matrices or biases differ by
// position, and our kernel computes it.
std::optional<DenseShape> ShapeOf(const Graph& graph, const LinearOp& op, DenseType type);
// Returns the shape with the activation `then` behind the layer; nullopt if the library does not
// have it, or would apply it to less than the sum.
std::optional<DenseShape> WithActivation(const DenseShape& shape, const ActivationOp* then);
// Returns the columns of logits in memory, rounded up so that their rows and those of the weights
// are aligned; the columns behind the vocabulary have zeros for weights.
constexpr int32_t PaddedVocab(int64_t vocab) { return static_cast<int32_t>((vocab + 7) / 8 * 8); }

// Returns nullopt if there is a bias, whose type differs from that of the logits; our kernel
// computes these.
std::optional<DenseShape> ShapeOf(const Graph& graph, const HeadOp& op, int64_t vocab,
                                  DenseType type);

// Returns all shapes that lowering a model may ask for whose layers are in `type`.
std::set<DenseShape> DenseShapesOf(const Graph& graph, int64_t vocab, DenseType type);

}  // namespace sluice
