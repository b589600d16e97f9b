// The choice of the order in which attention reads keys.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "engine/attention_variant.h"
#include "engine/einsum/device_description.h"
#include "engine/model/config.h"
#include "kernels/cpu/attention_plan.h"

namespace sluice {

struct AttentionDecision {
  AttentionVariant variant;  // not kAuto
  std::string reason;        // in a sentence
};

// Decides which variant `wanted` is: itself, or for kAuto the one with the lowest estimate for a
// decode step of one of the model's longest sequences. Split sequences have as many parts as the
// step's other work leaves threads idle, so that short contexts and full batches are not split.
// Another variant than one_pass has to be ahead of it by a tenth, so that noise in the description
// of the device decides nothing.
//
// `device` is called for kAuto alone, because it may have to measure.
AttentionDecision ChooseAttention(const AttentionVariant& wanted, const ModelConfig& config,
                                  absl::FunctionRef<const einsum::DeviceDescription&()> device);

// Returns the kernel's name for a variant. Requires another than kAuto.
kernels::AttentionChoice KernelChoice(const AttentionVariant& variant);

}  // namespace sluice
