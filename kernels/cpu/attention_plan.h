// How the attention of a step is divided into work items for threads.
//
// A block is some rows of a sequence with one KV head and its query heads. Where there are fewer
// blocks than keep the threads busy, or one is much longer than the others, blocks are divided into
// parts, each of which reads a range of the segments of keys. The division never changes a bit: the
// segments are the same in all of them (kernels/cpu/simd/attention_segment.h).
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

// One sequence of the step batch. The keys of positions [0, first_position + count) are in the
// cache.
struct AttentionSequence {
  int32_t first_position;
  int32_t count;         // rows of this step
  const int32_t* rows;   // [count] row indices, by ascending position
  const int32_t* pages;  // [ceil((first_position + count) / kPageTokens)] page ids
};

// The order in which a step's keys are read. All give the same bits.
enum class AttentionOrder {
  kBalanced,  // one pass; parts where they make the step quicker on the threads at hand
  kOnePass,   // scores, weights and sums of a segment, then the next segment; no parts
  kTwoPass,   // the scores of all keys, then all sums; no parts
  kSplit,     // one pass, each block in a given number of parts, which may run at once
};

struct AttentionChoice {
  AttentionOrder order = AttentionOrder::kBalanced;
  int32_t parts = 1;  // of kSplit, >= 1

  bool operator==(const AttentionChoice&) const = default;
};

// The sizes of the attention of a model on some threads.
struct AttentionSizes {
  int32_t q_heads;  // a multiple of kv_heads
  int32_t kv_heads;
  int32_t head_dim;
  int64_t max_context;  // >= the context of every sequence
  int threads;

  int32_t group() const { return q_heads / kv_heads; }
};

// The work items of one sequence: `blocks` times `parts`.
struct SequenceItems {
  int64_t blocks;
  int64_t block_queries;
  int64_t segments;  // of the sequence's keys
  int64_t parts;     // of each block, at most `segments`
  int64_t records;   // index of the first record of the blocks' parts, if parts > 1

  int64_t items() const { return blocks * parts; }
};

class AttentionPlan {
 public:
  AttentionPlan(const AttentionChoice& choice, const AttentionSizes& sizes,
                std::span<const AttentionSequence> sequences);

  int32_t block_rows() const { return block_rows_; }

  // Returns the items of the next sequence. Requires that `records` is 0 for the first sequence and
  // passed on from one sequence to the next.
  SequenceItems ItemsOf(const AttentionSequence& sequence, int64_t* records) const;

  // Returns the most records that the parts of a step take.
  static int64_t MaxRecords(const AttentionChoice& choice, const AttentionSizes& sizes);
  // Returns the most queries of a block.
  static int64_t MaxQueries(const AttentionSizes& sizes);

 private:
  int64_t BlocksOf(const AttentionSequence& sequence) const;
  int64_t BlockQueriesOf(const AttentionSequence& sequence) const;
  // Returns the segments that a block reads times the tiles of queries that read them.
  int64_t WorkOf(const AttentionSequence& sequence) const;

  AttentionChoice choice_;
  AttentionSizes sizes_;
  int32_t block_rows_;
  double part_work_ = 0;  // of a part; 0 if no block of a balanced step is divided
};

}  // namespace sluice::kernels
