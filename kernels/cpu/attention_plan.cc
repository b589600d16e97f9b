#include "kernels/cpu/attention_plan.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cpu/simd/table.h"

namespace sluice::kernels {
namespace {

// The queries whose records fit a near cache.
constexpr int32_t kMaxBlockQueries = 256;
// The number of work items for each thread that lets quick threads take over from slow ones.
constexpr int kItemsPerThread = 4;
// The least gain for which blocks are divided: their records are written and read again.
constexpr double kWorthParts = 1.1;

int64_t SegmentsOf(int64_t context) { return CeilDiv(context, kSegmentTokens); }

int32_t MaxRows(const AttentionSizes& sizes) {
  return std::clamp(kMaxBlockQueries / sizes.group(), 1, simd::kAttentionRows);
}

}  // namespace

int64_t AttentionPlan::MaxQueries(const AttentionSizes& sizes) {
  return int64_t{MaxRows(sizes)} * sizes.group();
}

int64_t AttentionPlan::MaxRecords(const AttentionChoice& choice, const AttentionSizes& sizes) {
  const bool balanced = choice.order == AttentionOrder::kBalanced && sizes.threads > 1;
  const bool split = choice.order == AttentionOrder::kSplit && choice.parts > 1;
  if (!balanced && !split) return 0;
  const int64_t queries =
      std::max(sizes.group(), std::max(sizes.threads, sizes.kv_heads) * simd::kAttentionTile);
  return SegmentsOf(sizes.max_context) * queries;
}

AttentionPlan::AttentionPlan(const AttentionChoice& choice, const AttentionSizes& sizes,
                             std::span<const AttentionSequence> sequences)
    : choice_(choice), sizes_(sizes), block_rows_(MaxRows(sizes)) {
  const int threads = sizes.threads;
  int64_t blocks = 0;
  const auto count_blocks = [&] {
    blocks = 0;
    for (const AttentionSequence& sequence : sequences) blocks += BlocksOf(sequence);
    return blocks;
  };
  while (count_blocks() < int64_t{kItemsPerThread} * threads && threads > 1 &&
         block_rows_ % 2 == 0 && int64_t{block_rows_} * sizes.group() > simd::kAttentionTile) {
    block_rows_ /= 2;
  }
  if (blocks == 0) return;
  double work = 0, longest = 0;
  for (const AttentionSequence& sequence : sequences) {
    const auto each = static_cast<double>(WorkOf(sequence));
    work += static_cast<double>(BlocksOf(sequence)) * each;
    longest = std::max(longest, each);
  }
  const double ideal = work / threads;
  const double rounds = static_cast<double>(CeilDiv(blocks, threads));
  const double whole = std::max(longest, rounds * work / static_cast<double>(blocks));
  if (whole > kWorthParts * ideal) part_work_ = ideal / kItemsPerThread;
}

int64_t AttentionPlan::BlocksOf(const AttentionSequence& sequence) const {
  return CeilDiv(sequence.count, block_rows_) * sizes_.kv_heads;
}

int64_t AttentionPlan::BlockQueriesOf(const AttentionSequence& sequence) const {
  return int64_t{std::min(sequence.count, block_rows_)} * sizes_.group();
}

int64_t AttentionPlan::WorkOf(const AttentionSequence& sequence) const {
  return SegmentsOf(sequence.first_position + sequence.count) *
         CeilDiv(BlockQueriesOf(sequence), simd::kAttentionTile);
}

SequenceItems AttentionPlan::ItemsOf(const AttentionSequence& sequence, int64_t* records) const {
  SequenceItems items = {.blocks = BlocksOf(sequence),
                         .block_queries = BlockQueriesOf(sequence),
                         .segments = SegmentsOf(sequence.first_position + sequence.count),
                         .parts = 1,
                         .records = *records};
  int64_t wanted = 1;
  if (choice_.order == AttentionOrder::kSplit) wanted = choice_.parts;
  if (choice_.order == AttentionOrder::kBalanced && part_work_ > 0) {
    wanted = static_cast<int64_t>(static_cast<double>(WorkOf(sequence)) / part_work_ + 0.5);
  }
  const int64_t needed = items.blocks * items.block_queries * items.segments;
  if (wanted <= 1 || items.segments <= 1) return items;
  if (*records + needed > MaxRecords(choice_, sizes_)) return items;
  items.parts = std::min(wanted, items.segments);
  *records += needed;
  return items;
}

}  // namespace sluice::kernels
