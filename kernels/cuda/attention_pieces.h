// Brings the keys and values of attention through shared memory. Device code only.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// The memory through which the warps that share a narrow tile exchange the weights of a chunk.
template <typename T, int32_t kDims>
struct NarrowMemory {
  static constexpr int32_t kBlocks = ChunkKeys(kDims) / kWeightBlock;

  alignas(kCopyBytes) T q[kWarpQueries * kDims];
  alignas(kCopyBytes) Pack<uint32_t> weights[kBlocks][sizeof(T) / 2][kWarp];
  Pack<float, 2> sums[kBlocks][kWarp];  // of a lane's weights, for its two rows
  float largest[kWarpQueries][kAttentionWarps];
};

// Keys and values pass through a ring of pieces. A piece has kKeys positions.
template <typename T, int32_t kMaxDims, int32_t kKeys, int32_t kRing>
struct AttentionShared {
  static constexpr int32_t kDims = kMaxDims, kChunk = ChunkKeys(kDims);
  static constexpr int32_t kPieceKeys = kKeys, kSlots = kRing;
  static constexpr int32_t kPieces = kChunk / kPieceKeys;  // of a chunk's keys, and of its values
  // Whether the merged sums of wide tiles are here. For narrower heads they are in registers, and
  // for wider ones in global memory.
  static constexpr bool kHasTotals = sizeof(T) == sizeof(BFloat16) && kDims == 128;
  static constexpr int32_t kWarpBytes =
      kWarpQueries * kDims * static_cast<int32_t>(kHasTotals ? sizeof(float) : sizeof(T));

  alignas(kSharedAlignment) T ring[kSlots][kPieceKeys * kDims];
  union {
    alignas(kCopyBytes) T q[kTileQueries * kDims];
    NarrowMemory<T, kDims> narrow;
    unsigned char of_warps[kAttentionWarps][kWarpBytes];  // merged sums, and rows to be written
    float rows[kWarpQueries][kDims + 8];                  // of a narrow tile, to be finished
  };
  QueryPlace queries[kTileQueries];
  Arrival arrivals[kSlots];
  int32_t cleared[kPieces][kAttentionWarps];  // whether the warp has cleared
                                              // values of the piece
  int32_t next;                               // work of the block
};

// The next slot of a ring, and how often it has been used. Kept from tile to tile.
struct RingPlace {
  int32_t slot = 0, phase = 0;
};

// The pieces of keys and values that a block reads, in order: for each chunk first the pieces of
// its keys, then the pieces of its values. Step i of a chunk is its piece i. With kBulk, heads have
// kDims features, and bulk copies bring the pages, one for each warp. Otherwise each thread copies
// up to 16 bytes at a time.
template <typename T, bool kBulk, bool kShaped, typename Shared>
class Pieces {
 public:
  using Rows = TurnedRows<T, Shared::kDims>;
  static constexpr int32_t kSteps = 2 * Shared::kPieces;

  __device__ Pieces(const AttentionArgs<T>& args, const AttentionWork& work, Shared& shared,
                    RingPlace& place, bool aligned)
      : args_(args), work_(work), shared_(shared), place_(place), aligned_(aligned) {
    const int32_t keys = work.tile.past_segment * kSegmentTokens;
    end_ = keys < work.tile.context ? keys : work.tile.context;
  }

  // Requests the first pieces.
  __device__ void Begin() {
    int32_t chunk = work_.tile.first_segment * static_cast<int32_t>(kSegmentTokens);
    if (kShaped && chunk < work_.lowest) chunk = work_.lowest / kChunk * kChunk;
    HoldPage(0, chunk);
    SLUICE_UNROLL
    for (int32_t i = 0; i < Shared::kSlots - 1; ++i) Request(i, i, chunk);
  }

  // Returns the rows of step `step` of the chunk that begins at position `chunk`. They are valid
  // until the next call. Positions that the tile does not see are zeros, but a piece without any
  // that it sees has no defined content. If `cleared` is not null, values that are not finite are
  // replaced by zeros, and cleared[warp] becomes whether there were any.
  __device__ Rows Next(int32_t step, int32_t chunk, int32_t* cleared = nullptr) {
    const int32_t slot = SlotOf(step, 0);
    const Rows rows = {shared_.ring[slot]};
    if constexpr (kBulk) {
      WaitArrival(shared_.arrivals[slot], place_.phase);
      const int32_t first = FirstOf(step, chunk);
      const bool absent =
          first + Shared::kPieceKeys > work_.tile.context || (kShaped && first < FirstPosition());
      if ((absent || cleared != nullptr) && first < work_.tile.context) {
        if (absent) ClearAbsent(first, rows);
        if (cleared != nullptr) Clear(rows, cleared);
        ShareWithCopies();
      }
    } else {
      WaitCopies<Shared::kSlots - 2>();
      if (cleared != nullptr) Clear(rows, cleared);
    }
    SyncBlock();
    Request(step + Shared::kSlots - 1, Shared::kSlots - 1, chunk);
    if (kFixed ? step == kSteps - 1 : ++place_.slot == Shared::kSlots) {
      place_.slot = 0;
      ++place_.phase;
    }
    return rows;
  }

 private:
  static constexpr int32_t kChunk = Shared::kChunk;
  static constexpr int32_t kPerRow = Shared::kDims / kCopyElements<T>;
  static constexpr int32_t kRows = kAttentionThreads / kPerRow;  // that the block copies at a time
  static constexpr int32_t kPages = Shared::kPieceKeys / kPageTokens;
  // Whether each step always has the same slot.
  static constexpr bool kFixed = Shared::kSlots == kSteps;
  static_assert(kRows >= 1 && kPageTokens % kRows == 0 && kPages <= kAttentionWarps);

  // Returns the slot of a step, which is `ahead` steps after the next one.
  __device__ int32_t SlotOf(int32_t step, int32_t ahead) const {
    if (kFixed) return step % kSteps;
    const int32_t slot = place_.slot + ahead;
    return slot < Shared::kSlots ? slot : slot - Shared::kSlots;
  }
  // Returns the first position of a step, which may be a step of a chunk after `chunk`.
  static __device__ int32_t FirstOf(int32_t step, int32_t chunk) {
    return chunk + step / kSteps * kChunk + step % Shared::kPieces * Shared::kPieceKeys;
  }
  // Returns the first position whose page is present. A page before all windows may already belong
  // to another sequence.
  __device__ int32_t FirstPosition() const { return work_.lowest / kPageTokens * kPageTokens; }
  // Returns how many positions of the page that begins at `position` are present.
  __device__ int32_t Present(int32_t position) const {
    if (kShaped && position < FirstPosition()) return 0;
    const int32_t left = work_.tile.context - position;
    return left < 0 ? 0 : left < kPageTokens ? left : kPageTokens;
  }
  __device__ int32_t PageAt(int32_t position) const {
    return args_.pages[work_.sequence.pages_offset + position / kPageTokens];
  }

  // Reads the id of the page that the warp copies in a step, so that it has arrived when the page
  // is requested.
  __device__ void HoldPage(int32_t step, int32_t chunk) {
    if (!kBulk || Warp() >= kPages) return;
    const int32_t position = FirstOf(step, chunk) + Warp() * kPageTokens;
    if (Present(position) > 0) page_ = PageAt(position);
  }

  // Requests the piece of a step, if there is one.
  __device__ void Request(int32_t step, int32_t ahead, int32_t chunk) {
    if (chunk + step / kSteps * kChunk < end_) {
      const T* const layer = step % kSteps >= Shared::kPieces ? args_.kv.v : args_.kv.k;
      const int32_t slot = SlotOf(step, ahead);
      const Rows to = {shared_.ring[slot]};
      if constexpr (kBulk) {
        if (Warp() < kPages) {
          constexpr int32_t kRowBytes = Shared::kDims * static_cast<int32_t>(sizeof(T));
          const int32_t present = Present(FirstOf(step, chunk) + Warp() * kPageTokens);
          const int32_t head = page_ * args_.kv.kv_heads + work_.kv_head;
          WarpBulkCopy(to.From(Warp() * kPageTokens).first,
                       layer + int64_t{head} * (kPageTokens * Shared::kDims), present * kRowBytes,
                       shared_.arrivals[slot]);
          HoldPage(step + 1, chunk);
        }
      } else {
        BringRows(layer, FirstOf(step, chunk), to);
      }
    }
    if (!kBulk) CommitCopies();
  }

  // Positions that are absent become zeros.
  __device__ void BringRows(const T* layer, int32_t first, const Rows& to) {
    const int32_t dim = args_.kv.head_dim;
    const int32_t key = ThreadIndex() / kPerRow;
    const int32_t column = ThreadIndex() % kPerRow * kCopyElements<T>;
    SLUICE_ROLLED
    for (int32_t page = 0; page < kPages; ++page) {
      const int32_t position = first + page * kPageTokens, present = Present(position);
      const int32_t slot = present > 0 ? PageAt(position) * kPageTokens : 0;
      SLUICE_ROLLED
      for (int32_t k = key; k < kPageTokens; k += kRows) {
        const KvRow<const T> row = args_.kv.Row(layer, slot + k, work_.kv_head);
        const int32_t count = k < present ? dim - column : 0;
        T* const place = to.At(page * kPageTokens + k, column);
        if (aligned_) {
          cuda::Bring<T, true>(place, row.At(column), layer, count);
        } else {
          cuda::Bring<T, false>(place, row.At(column), layer, count);
        }
      }
    }
  }

  // Replaces absent positions of the piece by zeros.
  __device__ void ClearAbsent(int32_t first, const Rows& rows) {
    SLUICE_ROLLED
    for (int32_t i = ThreadIndex(); i < Shared::kPieceKeys * kPerRow; i += kAttentionThreads) {
      const int32_t row = i / kPerRow, position = first + row;
      if (position < work_.tile.context && (!kShaped || position >= FirstPosition())) continue;
      StoreWhole(Pack<T>{}, rows.At(row, i % kPerRow * kCopyElements<T>));
    }
  }

  // Replaces values that are not finite by zeros and notes whether there were any. Each thread
  // handles the values that it has copied or zeroed itself.
  __device__ void Clear(const Rows& rows, int32_t* cleared) {
    bool found = false;
    SLUICE_ROLLED
    for (int32_t i = ThreadIndex(); i < Shared::kPieceKeys * kPerRow; i += kAttentionThreads) {
      if (ClearValues(rows.At(i / kPerRow, i % kPerRow * kCopyElements<T>))) found = true;
    }
    NoteCleared(found, cleared);
  }

  const AttentionArgs<T>& args_;
  const AttentionWork& work_;
  Shared& shared_;
  RingPlace& place_;
  const bool aligned_;  // whether rows may be copied 16 bytes at a time
  int32_t end_;         // of the positions
  int32_t page_ = 0;    // that the warp copies next
};

}  // namespace sluice::kernels::cuda
