// Ops without KV pages: inputs, norms, projections, activations, and the exchange between rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cpu/cpu_op.h"
#include "engine/cpu/int8_plan.h"
#include "engine/cpu/weights.h"
#include "kernels/cpu/gemm.h"

namespace sluice {

// `table` is [entries, width], from the entry of index 0 on.
std::unique_ptr<const CpuOp> MakeCpuEmbed(const EmbedOp& op, StoredTensor table, int64_t width);
std::unique_ptr<const CpuOp> MakeCpuInput(const InputOp& op);
// `weight` and `bias` are [op.width], scaled, or empty. A row has `groups` groups of op.width
// values. `quantization` is the op's of PlanQuantization, here and below.
std::unique_ptr<const CpuOp> MakeCpuNorm(const NormOp& op, int64_t groups,
                                         std::vector<float> weight, std::vector<float> bias,
                                         RowQuantization quantization);
// `bias` is [n] or, with op.position_bias, [positions, n]; or empty.
std::unique_ptr<const CpuOp> MakeCpuLinear(const LinearOp& op, kernels::PackedWeights weights,
                                           std::vector<float> bias, RowQuantization quantization);
std::unique_ptr<const CpuOp> MakeCpuActivation(const ActivationOp& op, int64_t width,
                                               RowQuantization quantization);
std::unique_ptr<const CpuOp> MakeCpuExchange(const ExchangeOp& op, int64_t width);
// `a_weight` and `b_weight` are [width], or empty.
std::unique_ptr<const CpuOp> MakeCpuMix(const MixOp& op, int64_t width, std::vector<float> a_weight,
                                        std::vector<float> b_weight);

}  // namespace sluice
