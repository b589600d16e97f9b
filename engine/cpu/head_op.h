// The last ops: logits of the sampled rows, scored or sampled, and states.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/cpu_op.h"
#include "engine/model/output_heads.h"
#include "kernels/cpu/gemm.h"

namespace sluice {

// The parts of a head other than its matrix; see HeadOp.
struct HeadFinish {
  std::vector<float> bias;          // [vocab] or empty
  float soft_cap = 0;               // 0 for none
  const ItemHead* items = nullptr;  // the rows as stored; outlives the op
};

// `head` is [hidden -> vocab]; `in` holds the rows after the last norm.
CpuOp MakeCpuHead(BufferId in, kernels::PackedWeights head, HeadFinish finish);

// Adds the requested states of `in`, or of `trunk`; their rows have `width` values.
CpuOp MakeCpuState(BufferId in, BufferId trunk, int64_t width);

}  // namespace sluice
