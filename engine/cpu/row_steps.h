// Steps that treat each row by itself: embedding, norm, projections, activation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cpu/step.h"
#include "engine/cpu/weights.h"
#include "kernels/cpu/dense.h"
#include "kernels/cpu/gemm.h"

namespace sluice {

// table: [vocab, width]
std::unique_ptr<const Step> MakeEmbedStep(const EmbedOp& op, StoredTensor table, int64_t width);
// weight: [width]
std::unique_ptr<const Step> MakeRmsNormStep(const NormOp& op, std::vector<float> weight);
// bias: [n], or empty
std::unique_ptr<const Step> MakeDenseStep(const LinearOp& op, std::unique_ptr<kernels::Dense> dense,
                                          std::vector<float> bias);
// bias: [n] or, with op.position_bias, [positions, n]; or empty
std::unique_ptr<const Step> MakePositionWiseStep(const LinearOp& op, kernels::PackedWeights weights,
                                                 std::vector<float> bias);
std::unique_ptr<const Step> MakeSwiGluStep(const ActivationOp& op, int64_t width);

}  // namespace sluice
