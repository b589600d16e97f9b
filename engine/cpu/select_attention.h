// The order in which attention reads the keys of a model on the CPU.
#pragma once

#include <string>

#include "engine/attention_variant.h"
#include "engine/model/config.h"
#include "kernels/cpu/attention_schedule.h"

namespace sluice {

struct SelectedAttention {
  AttentionVariant variant;  // not kAuto
  std::string reason;        // in a sentence
};

// Returns `wanted` unless it is kAuto. For kAuto, returns the variant that keeps the threads busy
// in a decode step of one of the model's longest sequences. one_pass has a work item for each KV
// head; split:auto divides the keys of a head between threads. split:auto is selected if it keeps
// clearly more threads busy. All variants give the same bits. tests/cascades compares the rule with
// the search for variants and with measurements.
SelectedAttention SelectAttention(const AttentionVariant& wanted, const ModelConfig& config,
                                  int threads);

// Returns the kernel's name for a variant. Requires another variant than kAuto.
kernels::AttentionChoice KernelOrder(const AttentionVariant& variant);

}  // namespace sluice
