#include "kernels/cpu/attention_schedule.h"

#include <functional>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cpu/simd/table.h"

namespace sluice::kernels {
namespace {

// This many queries have records that fit a near cache.
constexpr int32_t kMaxBlockQueries = 256;
// The number of work items for each thread. Several items let quick threads take over work from
// slow ones.
constexpr int kItemsPerThread = 4;
// Blocks are divided only if the gain is at least this factor, because their records are written
// and read again.
constexpr double kWorthParts = 1.1;
// The simulation of a step uses at most this many threads.
constexpr int kMaxWorkers = 1024;

int64_t SegmentsOf(int64_t context) { return CeilDiv(context, kSegmentTokens); }

int32_t MaxRows(const AttentionSizes& sizes) {
  return std::clamp(kMaxBlockQueries / sizes.group(), 1, simd::kAttentionRows);
}

}  // namespace

int64_t AttentionSchedule::MaxQueries(const AttentionSizes& sizes) {
  return int64_t{MaxRows(sizes)} * sizes.group();
}

int64_t AttentionSchedule::MaxRecords(const AttentionChoice& choice, const AttentionSizes& sizes) {
  int64_t blocks = CeilDiv(2 * kItemsPerThread * sizes.threads, 3);
  switch (choice.order) {
    case AttentionOrder::kBalanced:
      if (sizes.threads == 1) return 0;
      break;
    case AttentionOrder::kSplit:
      if (choice.parts <= 1) return 0;
      blocks = std::max<int64_t>(blocks, sizes.kv_heads);
      break;
    case AttentionOrder::kOnePass:
    case AttentionOrder::kTwoPass:
      return 0;
  }
  return SegmentsOf(sizes.max_context) * blocks * std::max(sizes.group(), simd::kAttentionTile);
}

AttentionSchedule::AttentionSchedule(const AttentionChoice& choice, const AttentionSizes& sizes,
                                     std::span<const AttentionSequence> sequences)
    : sizes_(sizes), sequences_(sequences), block_rows_(MaxRows(sizes)) {
  ChooseRows();
  if (choice.order == AttentionOrder::kSplit) {
    parts_ = choice.parts;
    Count();
    if (records() <= MaxRecords(choice, sizes)) return;
    parts_ = 1;
  }
  Count();
  if (choice.order == AttentionOrder::kBalanced) Balance();
}

int64_t AttentionSchedule::GrainOf(int64_t n) const {
  constexpr int64_t kRangesPerThread = 16;
  return std::max<int64_t>(1, n / (sizes_.threads * kRangesPerThread));
}

void AttentionSchedule::ChooseRows() {
  const int threads = sizes_.threads;
  const auto blocks = [&] {
    int64_t sum = 0;
    for (const AttentionSequence& sequence : sequences_) {
      sum += CeilDiv(sequence.count, block_rows_);
    }
    return sum * sizes_.kv_heads;
  };
  while (threads > 1 && block_rows_ > 1 &&
         int64_t{block_rows_} * sizes_.group() > simd::kAttentionTile &&
         blocks() < int64_t{kItemsPerThread} * threads) {
    block_rows_ = CeilDiv(block_rows_, 2);
  }
}

void AttentionSchedule::Balance() {
  if (sizes_.threads == 1 || SegmentsOf(sizes_.max_context) == 1) return;
  double work = 0, longest = 0;
  ForItems(0, items(), [&](const AttentionItem& item) {
    const auto each = static_cast<double>(WorkOf(item));
    work += each;
    longest = std::max(longest, each);
  });
  const double ideal = work / sizes_.threads;
  // The thread with the last item ends at most one item's work after the others.
  if (ideal + longest <= kWorthParts * ideal) return;
  // The step also takes at most `rounds` times the longest item.
  const int64_t rounds = CeilDiv(items(), int64_t{sizes_.threads});
  if (GrainOf(items()) == 1 && static_cast<double>(rounds) * longest <= kWorthParts * ideal) return;
  const auto whole = static_cast<double>(Makespan());
  if (whole <= kWorthParts * ideal) return;
  for (int items = kItemsPerThread; items > 0; items /= 2) {
    part_work_ = ideal / items;
    Count();
    const bool fits = records() <= MaxRecords({AttentionOrder::kBalanced}, sizes_);
    if (fits && kWorthParts * static_cast<double>(Makespan()) <= whole) return;
  }
  part_work_ = 0;
  Count();
}

void AttentionSchedule::Count() {
  const int64_t size = std::ssize(sequences_);
  const int64_t distance = std::max<int64_t>(1, CeilDiv(size, std::ssize(places_)));
  count_ = 0;
  end_ = {};
  while (end_.sequence < size) {
    if (end_.sequence % distance == 0) places_[count_++] = end_;
    end_ = After(end_, DivisionOf(sequences_[end_.sequence]));
  }
}

AttentionSchedule::Division AttentionSchedule::DivisionOf(const AttentionSequence& sequence) const {
  const int64_t rows = std::min(sequence.count, block_rows_);
  const int64_t queries = rows * sizes_.group();
  const int64_t segments = SegmentsOf(sequence.keys());
  int64_t seen = segments;
  if (sizes_.window > 0) {
    const int64_t keys = int64_t{sizes_.window} * (sizes_.causal ? 1 : 2) + rows;
    seen = std::min(segments, SegmentsOf(keys) + 1);
  }
  int64_t parts = parts_;
  if (part_work_ > 0) {
    const auto work = static_cast<double>(seen * CeilDiv(queries, simd::kAttentionTile));
    parts = static_cast<int64_t>(work / part_work_ + 0.5);
  }
  return {.blocks = CeilDiv(sequence.count, block_rows_) * int64_t{sizes_.kv_heads},
          .block_queries = queries,
          .segments = segments,
          .seen = seen,
          .parts = std::clamp<int64_t>(parts, 1, seen)};
}

AttentionItem AttentionSchedule::ItemOf(const Place& at, const Division& division, int64_t block,
                                        int64_t part) const {
  const AttentionSequence& sequence = sequences_[at.sequence];
  const int64_t row_blocks = division.blocks / sizes_.kv_heads;
  const int64_t head = sizes_.of_rows ? block / row_blocks : block % sizes_.kv_heads;
  const int64_t row_block = sizes_.of_rows ? block % row_blocks : block / sizes_.kv_heads;
  const auto first = static_cast<int32_t>(row_block * block_rows_);
  const int32_t rows = std::min(block_rows_, sequence.count - first);
  int64_t visible = sizes_.causal ? sequence.first_position + first + rows : sequence.keys();
  int64_t skipped = 0;  // segments that a window hides from all rows
  if (sizes_.window > 0) {
    const int64_t position = sequence.first_position + first;
    visible = std::min(visible, position + rows - 1 + sizes_.window);
    skipped = std::max<int64_t>(0, position - sizes_.window + 1) / kSegmentTokens;
  }
  const int64_t segments = SegmentsOf(visible) - skipped;
  const int64_t record = at.record + block * division.block_queries * division.segments;
  return {.sequence = &sequence,
          .first_row = first,
          .rows = rows,
          .kv_head = static_cast<int32_t>(head),
          .visible = visible,
          .first_segment = skipped + segments * part / division.parts,
          .past_segment = skipped + segments * (part + 1) / division.parts,
          .record = division.parts > 1 ? record : -1};
}

AttentionSchedule::Place AttentionSchedule::After(const Place& at, const Division& division) const {
  Place after = {at.sequence + 1, at.item + division.blocks * division.parts, at.record, at.query};
  if (division.parts > 1) {
    after.record += division.blocks * division.block_queries * division.segments;
    after.query += int64_t{sequences_[at.sequence].count} * sizes_.q_heads;
  }
  return after;
}

int64_t AttentionSchedule::WorkOf(const AttentionItem& item) const {
  return (item.past_segment - item.first_segment) *
         CeilDiv(int64_t{item.rows} * sizes_.group(), simd::kAttentionTile);
}

int64_t AttentionSchedule::Makespan() const {
  std::array<int64_t, kMaxWorkers> room;
  const auto ends = std::span(room).first(static_cast<size_t>(
      std::min(sizes_.threads, kMaxWorkers)));  // a heap of the times when workers become free
  std::ranges::fill(ends, 0);
  const int64_t grain = GrainOf(items());
  for (int64_t begin = 0; begin < items(); begin += grain) {
    std::ranges::pop_heap(ends, std::greater());
    ForItems(begin, std::min(begin + grain, items()),
             [&](const AttentionItem& item) { ends.back() += WorkOf(item); });
    std::ranges::push_heap(ends, std::greater());
  }
  return std::ranges::max(ends);
}

}  // namespace sluice::kernels
