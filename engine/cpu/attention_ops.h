// Ops that know positions and the KV pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cpu/cpu_op.h"
#include "engine/model/config.h"
#include "engine/model/rope.h"
#include "kernels/cpu/attention_plan.h"

namespace sluice {

// `rotary_dim` features of a head are rotated; layers share their table.
std::unique_ptr<const CpuOp> MakeCpuRopeStore(const RopeStoreOp& op, const ModelConfig& config,
                                              int32_t rotary_dim,
                                              std::shared_ptr<const RopeTable> table);

// `rows` is the op before, with the keys and values that are read where attention is in both
// directions. `gate` is [heads], after tanh; empty for none. `bias` is as BiasByDistance returns
// it, or nullptr.
std::unique_ptr<const CpuOp> MakeCpuAttention(const AttentionOp& op, const RopeStoreOp& rows,
                                              const ModelConfig& config, std::vector<float> gate,
                                              std::shared_ptr<const std::vector<float>> bias,
                                              const kernels::AttentionChoice& choice);

}  // namespace sluice
