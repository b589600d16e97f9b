#include "engine/cpu/attention_choice.h"

#include <algorithm>
#include <limits>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "engine/cascade/attention_variants.h"

namespace sluice {

using Kind = AttentionVariant::Kind;

AttentionVariant ChooseAttention(const AttentionVariant& wanted, const ModelConfig& config,
                                 const einsum::DeviceDescription& device) {
  constexpr double kClearlyAhead = 0.9;
  if (wanted.kind != Kind::kAuto) return wanted;
  // XSA follows the sums in every variant and does not tell them apart.
  const absl::StatusOr<AttentionEstimates> found =
      EstimateAttention({.causal = config.causal},
                        {.context = config.max_positions,
                         .kv_heads = config.kv_heads,
                         .group = config.heads / config.kv_heads,
                         .head_dim = config.head_dim},
                        device);
  SLUICE_CHECK(found.ok());
  const auto seconds = [&](Kind kind) {
    double least = std::numeric_limits<double>::infinity();
    for (const AttentionEstimate& each : found->variants) {
      if (each.variant.kind == kind) least = std::min(least, each.cost.seconds);
    }
    return least;
  };
  const double one_pass = kClearlyAhead * seconds(Kind::kOnePass);
  if (seconds(Kind::kSplit) < std::min(one_pass, seconds(Kind::kTwoPass))) return {Kind::kSplit};
  return {seconds(Kind::kTwoPass) < one_pass ? Kind::kTwoPass : Kind::kOnePass};
}

kernels::AttentionChoice KernelChoice(const AttentionVariant& variant) {
  using kernels::AttentionOrder;
  switch (variant.kind) {
    case Kind::kOnePass:
      return {AttentionOrder::kOnePass};
    case Kind::kTwoPass:
      return {AttentionOrder::kTwoPass};
    case Kind::kSplit:
      if (variant.parts == 0) return {AttentionOrder::kBalanced};
      return {AttentionOrder::kSplit, variant.parts};
    case Kind::kAuto:
      break;
  }
  SLUICE_CHECK(false);
}

}  // namespace sluice
