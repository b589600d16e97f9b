// Ops that know positions and the KV pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cpu/cpu_op.h"
#include "engine/model/config.h"
#include "kernels/cpu/attention_plan.h"

namespace sluice {

// The cosines and sines of every position, computed in double and rounded once; all layers share
// them.
struct RopeTables {
  std::vector<float> cos, sin;  // [max_positions, head_dim / 2]

  static std::shared_ptr<const RopeTables> Make(const ModelConfig& config);
  int64_t bytes() const { return 2 * cos.size() * sizeof(float); }
};

std::unique_ptr<const CpuOp> MakeCpuRopeStore(const RopeStoreOp& op, const ModelConfig& config,
                                              std::shared_ptr<const RopeTables> tables);

// `gate` is [heads], after tanh; empty for none.
std::unique_ptr<const CpuOp> MakeCpuAttention(const AttentionOp& op, const ModelConfig& config,
                                              std::vector<float> gate,
                                              const kernels::AttentionChoice& choice);

}  // namespace sluice
