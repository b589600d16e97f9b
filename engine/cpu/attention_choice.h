// The choice of the order in which attention reads keys.
#pragma once

#include "engine/attention_variant.h"
#include "engine/einsum/device_description.h"
#include "engine/model/config.h"
#include "kernels/cpu/attention_plan.h"

namespace sluice {

// Returns `wanted`, or for kAuto the variant with the lowest estimate for a decode step of one of
// the model's longest sequences. Split sequences have as many parts as the step's other work leaves
// threads idle, so that short contexts and full batches are not split. Another variant than
// one_pass has to be clearly ahead, so that the choice is the same from one start to the next.
AttentionVariant ChooseAttention(const AttentionVariant& wanted, const ModelConfig& config,
                                 const einsum::DeviceDescription& device);

// Returns the kernel's name for a variant. Requires another than kAuto.
kernels::AttentionChoice KernelChoice(const AttentionVariant& variant);

}  // namespace sluice
