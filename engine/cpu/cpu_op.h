// An op of a model's graph, lowered to CPU kernels with its weights bound.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "engine/cpu/cpu_slot.h"
#include "engine/cpu/layout.h"
#include "engine/model/graph.h"
#include "engine/model/quantization.h"
#include "engine/step_batch.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/cpu/route.h"

namespace sluice {

// The data of one step while its ops are executed.
struct StepRun {
  const kernels::Context& context;
  const StepBatch& batch;
  const ArenaLayout& layout;
  const CpuSlot& slot;

  int64_t rows() const { return batch.tokens(); }
  float* at(int64_t offset) const { return slot.arena() + offset; }
  float* buffer(BufferId id) const { return at(layout.buffers[id]); }
  // Returns `count` rows of k values, quantised for such weights; see engine/cpu/int8_layout.h.
  kernels::QuantizedRows quantized(int64_t count, int64_t k, Quantization weights) const {
    if (weights == Quantization::kNone) return {};
    return {context.profile, count, k, weights == Quantization::kInt4,
            reinterpret_cast<std::byte*>(at(layout.quantized))};
  }
  // Returns the routes that the latest RouteOp chose.
  kernels::Routes routes(int64_t experts, int64_t chosen) const {
    return {{rows(), experts, chosen}, reinterpret_cast<std::byte*>(at(layout.routes))};
  }
};

// Executes an op. It allocates nothing and may run for several slots at once.
using CpuOp = absl::AnyInvocable<void(const StepRun& run) const>;

}  // namespace sluice
