#include "engine/cpu/select_attention.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/kv_segment.h"

namespace sluice {

using Kind = AttentionVariant::Kind;

namespace {

// The work items of a thread in split:auto. More items even out their ends.
constexpr int64_t kItemsPerThread = 4;
// An order is clearly quicker if its time is below this share of the other order's time.
constexpr double kClearlyQuicker = 0.9;

// Returns how many of the threads compute, on average, until the last of `items` equal work items
// ends.
double BusyThreads(int64_t items, int64_t threads) {
  return static_cast<double>(items) / static_cast<double>(CeilDiv(items, threads));
}

}  // namespace

SelectedAttention SelectAttention(const AttentionVariant& wanted, const ModelConfig& config,
                                  int threads) {
  if (wanted.kind != Kind::kAuto) return {wanted, "engine.attention.variant names it."};
  const int64_t heads = config.kv_heads;
  const int64_t ranges = std::min(CeilDiv(config.max_positions, kernels::kSegmentTokens),
                                  CeilDiv(kItemsPerThread * threads, heads));
  const double whole = BusyThreads(heads, threads), split = BusyThreads(heads * ranges, threads);
  const bool splits = whole < kClearlyQuicker * split;
  return {splits ? AttentionVariant{Kind::kSplit} : AttentionVariant{Kind::kOnePass},
          absl::StrFormat("auto takes it, because a sequence of %d tokens, the model's longest, "
                          "keeps %.1f of %d threads busy in one_pass and %.1f in split:auto.",
                          config.max_positions, whole, threads, split)};
}

kernels::AttentionChoice KernelOrder(const AttentionVariant& variant) {
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
