// Lowers the graph of a model to CPU ops.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention_variant.h"
#include "engine/cpu/cpu_op.h"
#include "engine/model/model.h"
#include "kernels/cpu/context.h"

namespace sluice {

struct LoweredModel {
  std::vector<CpuOp> ops;
  int64_t weight_bytes = 0;  // of all weights that the ops hold
};

// Checks every tensor by name, shape and dtype and packs it for `context`, whose pool must outlive
// the ops. `attention` is not kAuto. The checkpoint is not needed afterwards.
absl::StatusOr<LoweredModel> Lower(const Model& model, const kernels::Context& context,
                                   const AttentionVariant& attention);

}  // namespace sluice
