// What a graph asks of the vendor's library of dense layers.
#pragma once

#include <optional>
#include <set>

#include "engine/cuda/dense_layer.h"
#include "engine/model/graph.h"

namespace sluice {

// `next`, where that is an activation of `buffer` in place, or with a gate that lies elsewhere: what
// writes `buffer` may apply it. nullptr: it is none; so may `next` be.
const ActivationOp* ActivationOf(const GraphOp* next, BufferId buffer);

// nullopt: with matrices or biases by position our kernel computes it.
std::optional<DenseShape> ShapeOf(const Graph& graph, const LinearOp& op, bool half);
// With the activation behind the layer; nullopt: the library has no such, or would apply it to less than
// the sum.
std::optional<DenseShape> WithActivation(const DenseShape& shape, const ActivationOp* then);
// nullopt: with a bias, whose type is another than that of the logits, our kernel computes it.
std::optional<DenseShape> ShapeOf(const Graph& graph, const HeadOp& op, int64_t vocab, bool half);

// All that lowering a model may ask for.
std::set<DenseShape> DenseShapesOf(const Graph& graph, int64_t vocab, bool half);

}  // namespace sluice
