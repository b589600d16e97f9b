// The variants of attention, derived from its definition, and what each would cost on a device.
//
//   const AttentionEstimates found = EstimateAttention(shape, work, device).value();
//   for (const AttentionEstimate& each : found.variants) Compare(each.variant, each.cost.seconds);
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/cost.h"
#include "cascades/einsum/device_description.h"
#include "engine/attention_variant.h"

namespace sluice {

// The sizes of attention in a step: sequences of equal context, of which each computes its last
// `tokens`.
struct AttentionWork {
  int64_t sequences = 1;
  int64_t tokens = 1;
  int64_t context = 1;
  int64_t kv_heads = 1;
  int64_t group = 1;  // query heads of a KV head
  int64_t head_dim = 64;
  // The bytes that are read again and again, keys and values of these sequences among them. The
  // default says that they come from the memory: weights and pages of other layers are read between
  // two reads of the same key.
  double resident_bytes = std::numeric_limits<double>::infinity();
};

struct AttentionEstimate {
  AttentionVariant variant;  // not kAuto
  einsum::Cascade cascade;
  einsum::Analysis analysis;
  einsum::CostEstimate cost;
};

struct AttentionEstimates {
  // The definition of attention, which no kernel follows: the shares of the values, then their sum.
  einsum::Cascade definition;
  int definition_passes = 0;
  // The equal terms that were compared for each kernel, with keys in segments: first divisions are
  // moved, then keys are cut.
  int64_t variants_found = 0;
  bool variants_complete = true;  // false if there are more
  std::vector<AttentionEstimate> variants;
};

// Returns estimates of two_pass, one_pass and, where the context has several segments, split:2,
// split:auto and `parts` if it is 2 or more. Returns InvalidArgument for sizes below 1, and
// Internal if no term that was found is such a kernel's.
absl::StatusOr<AttentionEstimates> EstimateAttention(const einsum::AttentionShape& shape,
                                                     const AttentionWork& work,
                                                     const einsum::DeviceDescription& device,
                                                     int32_t parts = 0);

}  // namespace sluice
