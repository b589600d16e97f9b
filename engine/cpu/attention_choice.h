// The choice of the order in which attention reads keys.
#pragma once

#include "engine/attention_variant.h"
#include "kernels/cpu/attention_plan.h"

namespace sluice {

// Returns `wanted`, or the choice for kAuto.
AttentionVariant ChooseAttention(const AttentionVariant& wanted, int threads);

// Returns the kernel's name for a variant. Requires another than kAuto.
kernels::AttentionChoice KernelChoice(const AttentionVariant& variant);

}  // namespace sluice
