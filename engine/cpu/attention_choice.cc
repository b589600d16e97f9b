#include "engine/cpu/attention_choice.h"

#include "base/check.h"

namespace sluice {

using Kind = AttentionVariant::Kind;

AttentionVariant ChooseAttention(const AttentionVariant& wanted, int threads) {
  if (wanted.kind != Kind::kAuto) return wanted;
  return {threads > 1 ? Kind::kSplit : Kind::kOnePass};
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
