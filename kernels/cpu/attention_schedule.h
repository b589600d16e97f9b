// How the attention of a step is divided into work items for threads.
//
// A block is some rows of a sequence with one KV head and its query heads. If there are too few
// blocks to keep the threads busy, or one block is much longer than the others, blocks are divided
// into parts. Each part reads a range of the segments of keys. The division never changes a bit,
// because the segments are always the same (kernels/cpu/simd/attention_segment.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "kernels/kv_type.h"

namespace sluice::kernels {

// One sequence of the step batch. The keys of positions [0, first_position + count) are in the
// cache. If attention reads the step's own rows (AttentionArgs), all keys are in these rows, and
// first_position is 0.
struct AttentionSequence {
  int32_t first_position;
  int32_t count;         // rows of this step
  const int32_t* rows;   // [count] row indices, by ascending position
  const int32_t* pages;  // [ceil((first_position + count) / kPageTokens)] page ids, for the cache
  // The last `hidden` positions are keys for no row. Requires attention in both directions, no XSA,
  // and that each row sees a key.
  int32_t hidden = 0;

  int64_t keys() const { return int64_t{first_position} + count - hidden; }
};

// The order in which a step's keys are read. All orders give the same bits.
enum class AttentionOrder {
  kBalanced,  // one pass; divided into parts if this makes the step quicker on the given threads
  kOnePass,   // scores, weights and sums of a segment, then the next segment; no parts
  kTwoPass,   // the scores of all keys, then all sums; no parts
  // One pass. Each block of a step is in a given number of parts, which may run at the same time.
  // If there is too little memory for the records of all parts (AttentionSchedule::MaxRecords), no
  // block is divided; several threads then have more than two blocks each. A segment is never
  // divided.
  kSplit,
};

struct AttentionChoice {
  AttentionOrder order = AttentionOrder::kBalanced;
  int32_t parts = 1;  // of kSplit, >= 1

  bool operator==(const AttentionChoice&) const = default;
};

// The sizes of a model's attention, and the number of threads.
struct AttentionSizes {
  int32_t q_heads;  // a multiple of kv_heads
  int32_t kv_heads;
  int32_t head_dim;
  int64_t max_context;  // >= the context of every sequence
  int threads;
  bool causal = true;
  int32_t window = 0;  // see AttentionArgs
  KvType kv_type = KvType::kF32;
  bool of_rows = false;       // whether keys and values are in the step's rows, see AttentionArgs
  int64_t relative_rows = 0;  // of the tables of relative positions, or 0

  int32_t group() const { return q_heads / kv_heads; }
};

// A work item: a part of a block.
struct AttentionItem {
  const AttentionSequence* sequence;
  int32_t first_row;  // among the sequence's rows
  int32_t rows;
  int32_t kv_head;
  int64_t visible;  // keys that the last row sees
  int64_t first_segment;
  int64_t past_segment;
  int64_t record;  // index of the block's first record; -1 if it is not divided
};

class AttentionSchedule {
 public:
  // Divides the attention of `sequences`, which outlive this.
  AttentionSchedule(const AttentionChoice& choice, const AttentionSizes& sizes,
                    std::span<const AttentionSequence> sequences);

  int64_t items() const { return end_.item; }
  // The queries of all divided blocks. Their parts are merged after all items are done.
  int64_t divided_queries() const { return end_.query; }
  // The number of records for the parts of all blocks.
  int64_t records() const { return end_.record; }
  // Returns how many of `n` items or queries a thread takes at once.
  int64_t GrainOf(int64_t n) const;

  // Calls visit(item) for the items [begin, end). Items of a sequence are ordered by rows, then KV
  // heads, then parts, so that the heads of the same rows are neighbours. With keys in the step's
  // rows they are ordered by KV heads, then rows, so that few threads copy the same keys.
  template <typename Visit>
  void ForItems(int64_t begin, int64_t end, Visit visit) const {
    ForSequences(&Place::item, begin, end, [&](const Place& at, const Division& division) {
      const int64_t past = std::min(end - at.item, division.blocks * division.parts);
      for (int64_t i = std::max<int64_t>(begin - at.item, 0); i < past; ++i) {
        visit(ItemOf(at, division, i / division.parts, i % division.parts));
      }
    });
  }

  // Calls visit(block, index) for the divided queries [begin, end). `block` is the first item of
  // the query's block, and `index` the query's index in the block.
  template <typename Visit>
  void ForDividedQueries(int64_t begin, int64_t end, Visit visit) const {
    ForSequences(&Place::query, begin, end, [&](const Place& at, const Division& division) {
      if (division.parts == 1) return;
      int64_t first = at.query;
      for (int64_t index = 0; index < division.blocks; ++index) {
        const AttentionItem block = ItemOf(at, division, index, 0);
        const int64_t past = first + int64_t{block.rows} * sizes_.group();
        for (int64_t i = std::max(begin, first); i < std::min(end, past); ++i) {
          visit(block, i - first);
        }
        first = past;
      }
    });
  }

  // Returns the most records that the parts of a step need. kBalanced only divides blocks with at
  // least 3/8 of a thread's share of the work, so at most 8/3 blocks for each thread. There is
  // memory for this number of blocks with the longest context, each of one row, or of several rows
  // that fill a tile. kSplit has memory for at least one row of a sequence.
  static int64_t MaxRecords(const AttentionChoice& choice, const AttentionSizes& sizes);
  // Returns the most queries of a block.
  static int64_t MaxQueries(const AttentionSizes& sizes);

 private:
  // How the work of one sequence is divided.
  struct Division {
    int64_t blocks;
    int64_t block_queries;  // the most queries of a block
    int64_t segments;       // of the sequence's keys
    int64_t seen;           // the most segments that a block reads
    int64_t parts;          // of each block
  };

  // A sequence, and the numbers of items, records and divided queries before it.
  struct Place {
    int64_t sequence = 0;
    int64_t item = 0;
    int64_t record = 0;
    int64_t query = 0;
  };

  // Calls visit(place, division) for the sequences that have indices of `kind` in [begin, end), and
  // possibly for some sequences before them.
  template <typename Visit>
  void ForSequences(int64_t Place::*kind, int64_t begin, int64_t end, Visit visit) const {
    const auto places = std::span(places_).first(static_cast<size_t>(count_));
    const auto after = std::ranges::upper_bound(places, begin, {}, kind);
    if (after == places.begin()) return;  // there are no sequences
    Place at = *(after - 1);
    while (at.sequence < std::ssize(sequences_) && at.*kind < end) {
      const Division division = DivisionOf(sequences_[at.sequence]);
      visit(at, division);
      at = After(at, division);
    }
  }

  void ChooseRows();
  // Divides the longest blocks if this makes the step clearly quicker.
  void Balance();
  // Counts items, records and queries.
  void Count();
  Division DivisionOf(const AttentionSequence& sequence) const;
  AttentionItem ItemOf(const Place& at, const Division& division, int64_t block,
                       int64_t part) const;
  Place After(const Place& at, const Division& division) const;
  // Returns the item's number of segments times the number of query tiles that read them.
  int64_t WorkOf(const AttentionItem& item) const;
  // Returns the work of the thread that ends last, if each thread takes the next items when it is
  // free.
  int64_t Makespan() const;

  const AttentionSizes sizes_;
  const std::span<const AttentionSequence> sequences_;
  int32_t block_rows_;
  int64_t parts_ = 1;     // of each block, unless part_work_ is given
  double part_work_ = 0;  // of a part
  // Some of the sequences, at equal distances, so that a thread finds its items quickly.
  std::array<Place, 64> places_;
  int64_t count_ = 0;  // of places_
  Place end_;
};

}  // namespace sluice::kernels
