// The variants of attention, derived from its definition, and the estimated cost of each on a
// device.
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

// The sizes of attention in a step. The sequences have equal context, and each computes its last
// `tokens` tokens.
struct AttentionWork {
  int64_t sequences = 1;
  int64_t tokens = 1;
  int64_t context = 1;
  int64_t kv_heads = 1;
  int64_t group = 1;  // query heads of a KV head
  int64_t head_dim = 64;
  // The bytes that are read repeatedly, including the keys and values of these sequences. The
  // default means that they come from the memory: weights and pages of other layers are read
  // between two reads of the same key.
  double resident_bytes = std::numeric_limits<double>::infinity();
};

struct AttentionEstimate {
  AttentionVariant variant;  // not kAuto
  einsum::Cascade cascade;
  einsum::Analysis analysis;
  einsum::CostEstimate cost;
};

struct AttentionEstimates {
  // The definition of attention: the shares of the values, then their sum. No kernel computes it
  // this way.
  einsum::Cascade definition;
  int definition_passes = 0;
  // The equal terms that were compared for each kernel, with keys in segments: divisions are moved
  // first, then keys are cut.
  int64_t variants_found = 0;
  bool variants_complete = true;  // false if there are more
  std::vector<AttentionEstimate> variants;
};

// Returns estimates of two_pass and one_pass. If the context has several segments, also of split:2,
// split:auto and, if it is 2 or more, `parts`. Returns InvalidArgument for sizes below 1, and
// Internal if no term that was found belongs to such a kernel.
absl::StatusOr<AttentionEstimates> EstimateAttention(const einsum::AttentionShape& shape,
                                                     const AttentionWork& work,
                                                     const einsum::DeviceDescription& device,
                                                     int32_t parts = 0);

}  // namespace sluice
