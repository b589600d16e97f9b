// Joins dense layers that read the same rows.
#pragma once

#include <functional>

#include "engine/model/graph.h"

namespace sluice {

// A predicate of two layers: whether their weights allow joining them.
using LayersAlike = std::function<bool(const LinearOp&, const LinearOp&)>;

// Returns the graph with q, k and v as columns of one buffer that one layer writes, if that is
// possible in every layer of the model. If `gates`, joins the gate and the input of gated MLPs in
// the same way. The values of each op stay the same. Buffers keep their ids; new buffers get higher
// ids.
//
// Attention and the activation then write to contiguous buffers of their own, which the next layer
// reads. Without a join, our kernels compute both layers at once, or apply the activation in the
// second product, so gates are only joined for a library. Only layers for which `alike` returns
// true are joined; without `alike`, all of them are.
Graph JoinProjections(const Graph& graph, bool gates, const LayersAlike& alike = nullptr);

}  // namespace sluice
