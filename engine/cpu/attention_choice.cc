#include "engine/cpu/attention_choice.h"

#include <algorithm>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "engine/cascade/attention_variants.h"
#include "engine/cascade/cascade_of.h"

namespace sluice {

using Kind = AttentionVariant::Kind;

namespace {

constexpr double kClearlyAhead = 0.9;

// The lowest estimates of each kind, in seconds.
struct Estimates {
  double one_pass, two_pass, split;
};

Estimates EstimateLongest(const ModelConfig& config, const einsum::DeviceDescription& device) {
  // XSA follows the sums in every variant and does not tell them apart.
  const absl::StatusOr<AttentionEstimates> found =
      EstimateAttention({.causal = config.causal, .kv = KvPlaceOnCpu(config)},
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
  return {seconds(Kind::kOnePass), seconds(Kind::kTwoPass), seconds(Kind::kSplit)};
}

}  // namespace

AttentionDecision ChooseAttention(const AttentionVariant& wanted, const ModelConfig& config,
                                  absl::FunctionRef<const einsum::DeviceDescription&()> device) {
  if (wanted.kind != Kind::kAuto) return {wanted, "engine.attention.variant names it."};
  const Estimates seconds = EstimateLongest(config, device());
  const bool splits = seconds.split < seconds.two_pass;
  const double ratio = std::min(seconds.split, seconds.two_pass) / seconds.one_pass;
  const std::string longest =
      absl::StrCat("sequences of ", config.max_positions, " tokens, the model's longest");
  if (ratio >= kClearlyAhead) {
    return {{Kind::kOnePass},
            absl::StrCat("auto takes it, because no other order is estimated to be quicker by a "
                         "tenth for ",
                         longest, ".")};
  }
  return {{splits ? Kind::kSplit : Kind::kTwoPass},
          absl::StrFormat("auto takes it, because it is estimated to take %.2f times as long as "
                          "one_pass for %s.",
                          ratio, longest)};
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
