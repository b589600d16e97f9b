// Brings the keys and values of attention through shared memory. Device code only.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// Keys and values pass through a ring of pieces. A piece has kKeys positions, or kPageTokens
// positions in the warp's part of the ring if each warp works on its own tile. The sums are the
// same in both cases.
template <typename T, int32_t kMaxDims, int32_t kKeys, int32_t kRing>
struct AttentionShared {
  static constexpr int32_t kDims = kMaxDims;
  static constexpr int32_t kChunk = ChunkKeys(kDims);
  static constexpr int32_t kPieceKeys = kKeys;
  static constexpr int32_t kSlots = kRing;
  // The warps that have a part of the ring and may work separately. If heads are wide, blocks take
  // one tile at a time, because code for both ways would leave too few registers.
  static constexpr int32_t kTeams = kDims <= 128 ? kPieceKeys / kPageTokens : 1;
  static constexpr int32_t kStride = kDims + kCopyElements<T>;

  alignas(kCopyBytes) T q[kTileQueries][kStride];
  alignas(kCopyBytes) T ring[kSlots * kPieceKeys][kStride];
  QueryPlace queries[kTileQueries];
  int32_t cleared[kAttentionThreads /
                  kWarp];  // whether a thread of the warp has cleared values of the piece
  int32_t next;            // work of the block
};

// The threads that work on a tile: all threads of the block, or of one warp.
template <typename Shared, bool kBlock>
struct AttentionTeam {
  static constexpr int32_t kThreads = kBlock ? kAttentionThreads : kWarp;
  static constexpr int32_t kQueries = kThreads / kWarp * kWarpQueries;
  static constexpr int32_t kPieceKeys = kBlock ? Shared::kPieceKeys : kPageTokens;
  static constexpr int32_t kPieces =
      Shared::kChunk / kPieceKeys;  // of a chunk's keys, and of its values

  __device__ static int32_t Thread() { return kBlock ? ThreadIndex() : Lane(); }
  __device__ static int32_t FirstWarp() { return kBlock ? 0 : Warp(); }
  __device__ static int32_t FirstQuery() { return FirstWarp() * kWarpQueries; }  // of shared memory
  __device__ static void Sync() {
    if constexpr (kBlock) {
      SyncBlock();
    } else {
      SyncWarp();
    }
  }
};

// The pieces of keys and values that a team reads, in order: for each chunk first the pieces of its
// keys, then the pieces of its values.
template <typename T, bool kAsync, bool kShaped, typename Shared, typename Team>
class Pieces {
 public:
  using Rows = const T (*)[Shared::kStride];

  __device__ Pieces(const AttentionArgs<T>& args, const AttentionWork& work, Shared& shared)
      : args_(args),
        work_(work),
        shared_(shared),
        key_(Team::Thread() / kPerRow),
        column_(Team::Thread() % kPerRow * kCopyElements<T>),
        chunk_(work.tile.first_segment * (kSegmentTokens / kChunk)) {
    const int32_t left = (args.kv.head_dim - column_) * static_cast<int32_t>(sizeof(T));
    bytes_ = left < 0 ? 0 : left < kCopyBytes ? left : kCopyBytes;
    const int32_t keys = work.tile.past_segment * kSegmentTokens;
    const int32_t end = keys < work.tile.context ? keys : work.tile.context;
    past_chunk_ = (end + kChunk - 1) / kChunk;
    if (kShaped && chunk_ < work.lowest / kChunk) chunk_ = work.lowest / kChunk;
  }

  // Requests the first pieces. Earlier requested copies join the group of the first one.
  __device__ void Begin() {
    SLUICE_ROLLED
    for (int32_t i = 0; i < Shared::kSlots - 1; ++i) Request();
  }

  // Returns the rows of the next piece, which are valid until the next call. With `clear`, values
  // that are not finite are replaced by zeros.
  __device__ Rows Next(bool clear) {
    T(*const rows)[Shared::kStride] = Slot(taken_);
    taken_ = taken_ + 1 == Shared::kSlots ? 0 : taken_ + 1;
    WaitCopies<Shared::kSlots - 2>();
    if (clear) Clear(rows);
    Team::Sync();
    Request();
    return rows;
  }

 private:
  static constexpr int32_t kChunk = Shared::kChunk;
  static constexpr int32_t kPerRow = Shared::kDims / kCopyElements<T>;
  static constexpr int32_t kRows = Team::kThreads / kPerRow;  // rows that the team copies at a time
  static_assert(kRows >= 1 && kPageTokens % kRows == 0);

  __device__ T (*Slot(int32_t slot))[Shared::kStride] {
    return &shared_
                .ring[Team::FirstWarp() * Shared::kSlots * kPageTokens + slot * Team::kPieceKeys];
  }

  // Requests the piece after the last requested one, if there is one, as a group of copies.
  __device__ void Request() {
    if (chunk_ < past_chunk_) {
      const bool values = part_ >= Team::kPieces;
      const int32_t piece = values ? part_ - Team::kPieces : part_;
      Bring(values ? args_.kv.v : args_.kv.k, chunk_ * kChunk + piece * Team::kPieceKeys,
            Slot(requested_));
      requested_ = requested_ + 1 == Shared::kSlots ? 0 : requested_ + 1;
      if (++part_ == 2 * Team::kPieces) {
        part_ = 0;
        ++chunk_;
      }
    }
    CommitCopies();
  }

  // Positions that the tile does not see become zeros.
  __device__ void Bring(const T* layer, int32_t first, T (*to)[Shared::kStride]) {
    const int32_t dim = args_.kv.head_dim;
    SLUICE_UNROLL
    for (int32_t page = 0; page < Team::kPieceKeys / kPageTokens; ++page) {
      const int32_t position = first + page * kPageTokens;
      int32_t seen = work_.tile.context - position;  // positions of the page
      // A page before all windows may already belong to another sequence.
      if (kShaped && position + kPageTokens <= work_.lowest) seen = 0;
      const T* from = layer;
      if (seen > 0) {
        const int32_t id = args_.pages[work_.sequence.pages_offset + position / kPageTokens];
        from += args_.kv.PageOffset(id, work_.kv_head);
      }
      T* const place = &to[page * kPageTokens + key_][column_];
      if (kAsync && seen >= kPageTokens) {
        const T* row = from + key_ * dim + (bytes_ > 0 ? column_ : 0);
        SLUICE_UNROLL
        for (int32_t k = 0; k < kPageTokens; k += kRows, row += kRows * dim) {
          CopyAsync(place + k * Shared::kStride, row, bytes_);
        }
      } else {
        SLUICE_ROLLED
        for (int32_t k = 0; k < kPageTokens; k += kRows) {
          const int32_t count = key_ + k < seen ? dim - column_ : 0;
          cuda::Bring<T, kAsync>(place + k * Shared::kStride, from + (key_ + k) * dim + column_,
                                 layer, count);
        }
      }
    }
  }

  // Replaces values that are not finite by zeros and notes whether there were any. Each thread
  // handles the values that it has copied.
  __device__ void Clear(T (*rows)[Shared::kStride]) {
    bool found = false;
    SLUICE_ROLLED
    for (int32_t page = 0; page < Team::kPieceKeys / kPageTokens; ++page) {
      SLUICE_ROLLED
      for (int32_t k = 0; k < kPageTokens; k += kRows) {
        if (ClearValues(&rows[page * kPageTokens + key_ + k][column_])) found = true;
      }
    }
    NoteCleared(found, shared_.cleared);
  }

  const AttentionArgs<T>& args_;
  const AttentionWork& work_;
  Shared& shared_;
  const int32_t key_, column_;             // the first element of a page that the thread copies
  int32_t bytes_;                          // of a copy
  int32_t chunk_, past_chunk_, part_ = 0;  // of the next request
  int32_t requested_ = 0, taken_ = 0;      // slots
};

}  // namespace sluice::kernels::cuda
