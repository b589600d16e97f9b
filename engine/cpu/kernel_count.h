// Counts the kernels of a step on a CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/attention_variant.h"
#include "engine/model/model.h"
#include "engine/step_description.h"

namespace sluice {

// Returns the number of kernels that each op of the graph runs in a step of these sizes, for the
// plan that Lower makes. A kernel is a loop that the compute threads share (ThreadPool::
// ParallelFor); a copy by the calling thread is not one. The last token of each sequence is sampled
// without its logits, and no states are requested, so the plan's op for states runs no kernel.
// Needs only the config and the graph of the model, and the checkpoint if it keeps channels.
// Requires sizes from CompleteStep and another variant than kAuto.
std::vector<int64_t> CountKernels(const Model& model, const StepSizes& step,
                                  const AttentionVariant& attention, int threads);

}  // namespace sluice
