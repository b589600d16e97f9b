// The work of a block of attention, and code that the attention kernels share. Device code, except
// for the launch arguments.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/attention_sums.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

template <typename T>
struct AttentionKernelArgs {
  AttentionArgs<T> op;
  float* records;  // after the totals of the blocks
  int32_t record_stride;
  bool aligned;  // whether all rows may be accessed 16 bytes at a time
};

// The floats of scratch memory for the blocks' merged segments.
inline int64_t TotalFloats(int32_t head_dim, int64_t blocks) {
  if (head_dim <= kMaxRegisterDims) return 0;
  return blocks * kTileQueries * (head_dim <= 128 ? 128 : kMaxHeadDim);
}
inline int64_t RecordStride(int32_t head_dim) { return CeilDiv(head_dim, 8) * 8 + kRecordTail; }

// Returns whether all rows may be accessed 16 bytes at a time.
template <typename T>
bool RowsAreAligned(const AttentionArgs<T>& args) {
  const int32_t dim = args.kv.head_dim;
  return RowsAligned(args.q, dim) && RowsAligned(args.q, args.q_stride) &&
         RowsAligned(args.kv.k, dim) && RowsAligned(args.kv.v, dim) && RowsAligned(args.out, dim);
}

template <typename T>
AttentionKernelArgs<T> KernelArgsOf(const Stream& stream, const AttentionArgs<T>& args) {
  const int64_t blocks = int64_t{kAttentionBlocks} * stream.processors();
  const int64_t totals = args.tiles.records == 0 ? 0 : TotalFloats(args.kv.head_dim, blocks);
  return {args, args.scratch + totals, static_cast<int32_t>(RecordStride(args.kv.head_dim)),
          RowsAreAligned(args)};
}

// Queues the merge of the records of divided tiles after the kernel that writes them.
template <typename T>
void MergeAttention(Stream& stream, const AttentionKernelArgs<T>& args);

// Returns the index of a work item that no other block takes, after the first item of each block.
// The last of `items` calls resets the counter.
__device__ inline int32_t TakeWork(int32_t* taken, int32_t items) {
  const int32_t before = AtomicAdd(taken, 1);
  if (before == items - 1) AtomicAdd(taken, -items);
  return GridBlocks() + before;
}

// A tile, or a part of it, with one KV head.
struct AttentionWork {
  AttentionTile tile;
  AttentionSequence sequence;
  int32_t queries;  // of the tile
  int32_t kv_head;
  int32_t common;        // all queries see the positions before this one
  int32_t lowest = 0;    // the first position that a query sees
  int32_t all_from = 0;  // all queries' windows begin at or before this position

  // Returns whether the queries see different positions of the chunk [first, past).
  __device__ bool Divides(int32_t first, int32_t past) const {
    if (first < all_from) return true;
    return common < tile.context && common < past;
  }
  __device__ int32_t Segments() const {
    return (tile.context + kSegmentTokens - 1) / kSegmentTokens;
  }
};

template <bool kShaped, typename T>
__device__ AttentionWork WorkOf(const AttentionArgs<T>& args, const AttentionTile& tile,
                                int32_t kv_head) {
  const int32_t group = args.q_heads / args.kv.kv_heads;
  AttentionWork work = {tile, args.sequences[tile.sequence], 0, kv_head, tile.context};
  const int32_t left = work.sequence.count * group - tile.first;
  work.queries = left < kTileQueries ? left : kTileQueries;
  const int32_t first = work.sequence.first_position + tile.first / group;
  if (args.causal) work.common = first + 1;
  if (kShaped && args.window != 0) {
    const int32_t last = work.sequence.first_position + (tile.first + work.queries - 1) / group;
    work.lowest = FirstKey(first, args.window);
    work.all_from = FirstKey(last, args.window);
    const int32_t past = last + args.window;
    if (past < work.tile.context) work.tile.context = past;
    if (!args.causal && first + args.window < work.common) work.common = first + args.window;
  }
  return work;
}

template <bool kShaped, typename T>
__device__ QueryPlace PlaceOf(const AttentionArgs<T>& args, const AttentionWork& work,
                              int32_t query) {
  if (query >= work.queries) return {0, 0, 0, 0};
  const int32_t group = args.q_heads / args.kv.kv_heads, packed = work.tile.first + query;
  const int32_t row = packed / group, position = work.sequence.first_position + row;
  int32_t visible = args.causal ? position + 1 : work.tile.context;
  if (kShaped && args.window != 0 && position + args.window < visible) {
    visible = position + args.window;
  }
  return {args.rows[work.sequence.rows_offset + row], work.kv_head * group + packed % group,
          position, visible};
}

// Returns the value of a position.
template <typename T>
__device__ KvRow<T> ValueOf(const AttentionArgs<T>& args, const AttentionWork& work,
                            int32_t position) {
  const int32_t page = args.pages[work.sequence.pages_offset + position / kPageTokens];
  return args.kv.Row(args.kv.v, page * kPageTokens + position % kPageTokens, work.kv_head);
}

// Replaces values of 16 bytes that are not finite by zeros. Otherwise they would reach queries that
// do not see them, even with a weight of 0. Returns whether there were any.
template <typename T>
__device__ bool ClearValues(T* place) {
  auto values = LoadWhole<Pack<T>>(place);
  bool finite = true;
  SLUICE_UNROLL
  for (int32_t d = 0; d < kCopyElements<T>; ++d) {
    if (IsFinite(values.at[d])) continue;
    values.at[d] = Narrow<T>(0.0f);
    finite = false;
  }
  if (finite) return false;
  StoreWhole(values, place);
  return true;
}
// Notes for the block, [warps], whether a lane of the calling warp has replaced values.
__device__ inline void NoteCleared(bool found, int32_t* cleared) {
  const bool any = Ballot(found) != 0;
  if (Lane() == 0) cleared[Warp()] = any;
}

template <typename T>
__device__ ClearedValues<T> ClearedValuesOf(const AttentionArgs<T>& args,
                                            const AttentionWork& work) {
  return {args.kv, args.pages + work.sequence.pages_offset, work.kv_head, work.lowest,
          work.tile.context};
}

// Returns the place of the record of a query's sums over `segment`.
template <typename T>
__device__ float* RecordOf(const AttentionKernelArgs<T>& args, const AttentionWork& work,
                           int32_t segment, int32_t query) {
  const int64_t index =
      work.tile.record + (int64_t{work.kv_head} * work.Segments() + segment) * work.queries + query;
  return args.records + index * args.record_stride;
}

// Ends a segment of the warp's queries, which begin at number `first_query` of the work. Merges the
// segment's sums with the sums before, or, if the tile is divided, writes them to records.
template <typename T, typename Sums>
__device__ void FinishSegment(const AttentionKernelArgs<T>& args, const AttentionWork& work,
                              int32_t segment, int32_t first_query, bool divided, Sums& sums) {
  sums.EndSegment(segment, divided);
  if (!divided) return;
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t query = first_query + Lane() / 4 + 8 * i;
    if (query >= work.queries || !sums.SeesSegment(i, segment)) continue;
    sums.WriteRecord(i, RecordOf(args, work, segment, query), args.record_stride - kRecordTail);
  }
}

}  // namespace sluice::kernels::cuda
