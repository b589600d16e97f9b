// The ops of the layer graph as cascades of einsums.
//
//   for (const GraphOp& op : model.graph.ops) {
//     const einsum::Cascade cascade = CascadeOf(op, model.graph, model.config, {});
//     const auto analysis = einsum::Analyze(cascade, SizesOf(model.config, step));
//   }
//
// Terms cannot express everything, so some parts are left out. A gather (rows of a table that
// tokens choose, keys of pages, positions of a position-wise weight) is an access to rows that have
// been chosen already. The choice of the k largest logits and the draw of a token depend on values,
// which conditions of einsums cannot. The eps of XSA leaves y unchanged if a value is zero; it is
// left out, and the terms then divide 0 by 0. The gate tensor W of XSA is tanh(alpha), computed
// when the model is loaded. Linear layers that a backend has joined (LinearOp::more) are one layer;
// its weight W and bias B have the columns of all of them. The experts of rows depend on values, so
// the cascades of experts are those of a step whose rows are divided equally among the experts that
// are expected to have rows (ExpectedExperts).
#pragma once

#include <cstdint>

#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/interpreter.h"
#include "engine/model/config.h"
#include "engine/model/graph.h"
#include "engine/step_description.h"

namespace sluice {

// The homes of the weights, keys and values of a cascade. `weight_bytes` is the size of a value,
// including its part of shared scales.
struct CascadeOptions {
  double weight_bytes = 4;
  einsum::KvPlace kv = {};
};

// Returns where a CPU keeps the keys and values of a model. They are in pages, with a feature's
// part of a scale; if attention is in both directions, they are in the rows of the step.
einsum::KvPlace KvPlaceOnCpu(const ModelConfig& config);

// Returns the sizes of all symbols that CascadeOf uses: sequences, tokens (of a sequence), rows (of
// the step), context, kv_heads, group, head_dim, hidden, vocab, experts (with rows) and expert_rows
// (of each of these). Requires sizes from CompleteStep.
einsum::Sizes SizesOf(const ModelConfig& config, const StepSizes& step);

// Returns the shape of an attention op's term; see AttentionTerm.
einsum::AttentionShape AttentionShapeOf(const AttentionOp& op, const ModelConfig& config,
                                        const CascadeOptions& options);

// Returns the cascade of an op's definition. The ranks t and s are the rows of the step and the
// sampled rows.
einsum::Cascade CascadeOf(const GraphOp& op, const Graph& graph, const ModelConfig& config,
                          const CascadeOptions& options);

}  // namespace sluice
