// Kernels for the tests of the emulator: examples of each feature, and faults that it must catch.
#pragma once

#include <cstdint>

#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda::planted {

// Computes out[i] = in[i] + *n for i < *n with any number of blocks; n is on the device.
void AddCount(Stream& stream, const float* in, const int32_t* n, int32_t blocks, float* out);
// Does the same with n frozen at the time of the launch.
void AddFrozenCount(Stream& stream, const float* in, int32_t n, int32_t blocks, float* out);
// Does the same as AddCount, but with one element too many.
void AddOneTooMany(Stream& stream, const float* in, const int32_t* n, int32_t blocks, float* out);

// Reverses 128 numbers through shared memory, with or without the barrier that this needs.
enum class Sync { kBlock, kWarp, kNone };
void Reverse(Stream& stream, const float* in, Sync sync, float* out);
// Reverses each 32 of 128 numbers in the same way.
void ReverseInWarps(Stream& stream, const float* in, Sync sync, float* out);

// Sums the 32 numbers of each of 4 warps by shuffles.
void WarpSums(Stream& stream, const float* in, float* out);
// One lane shuffles after the others have returned.
void ShuffleWithReturnedLanes(Stream& stream, const float* in, float* out);
// Half of the block does not reach the barrier.
void DivergentBarrier(Stream& stream, bool return_early, float* out);

// Doubles 256 numbers copied asynchronously; only the first `valid` are real.
enum class Wait { kBeforeBarrier, kOnly, kNone };
void DoubleByCopies(Stream& stream, const float* in, int32_t valid, Wait wait, float* out);

// Doubles 256 numbers, which come in two phases of two bulk copies each to the same place.
enum class BulkUse {
  kRight,
  kWaitInOneThread,      // the others neither wait nor pass a barrier
  kNoWait,               // and no thread waits
  kNoBarrierBeforeInit,  // the arrival is used before other threads know that it is prepared
  kNoBarrierBetween,     // the second phase begins while threads may read the first one's data
  kHalfTheBlock,         // half of the threads do not start the copies
  kNoWaitAtTheEnd,       // the block ends before the second phase has arrived
};
void DoubleInBulk(Stream& stream, const float* in, BulkUse use, float* out);

// Sums 64 numbers of each of `blocks` blocks: each block adds those of its own to `sums` [blocks],
// and the last one that comes, by `counter`, which is 0, adds up these, by another of its threads.
enum class FenceUse {
  kRight,
  kNotBefore,         // the sum is not shown to other blocks
  kNotAfter,          // the sums are not seen
  kBeforeTheBarrier,  // the fence of a thread does not cover what another one writes meanwhile
  kNoBarrierAfter,    // another thread reads than has seen the sums
};
void SumOverBlocks(Stream& stream, const float* in, int32_t blocks, FenceUse use, float* sums,
                   int32_t* counter, float* out);

// Counts with an atomic addition, or with a plain one.
void Count(Stream& stream, bool atomically, int32_t blocks, int32_t* counter);

// Counts for each of 32 numbers the equal ones among them. Lanes whose number is 0 take no part if
// `some_return`.
void MatchLanesOf(Stream& stream, const uint32_t* in, bool some_return, int32_t* equal);

// Copies 32 rows of 8 numbers to shared memory, loads them as four matrices, and writes what each
// lane holds: out [32, 4] pairs.
enum class Rows { kWritten, kWithoutBarrier, kNotAligned, kInGlobalMemory };
void LoadRows(Stream& stream, const uint16_t* in, Rows rows, bool transposed, uint32_t* out);

// Computes Exp2 of 32 numbers, over itself if `divided`, which is 1 if it is not subnormal.
void PowersOfTwo(Stream& stream, const float* in, bool divided, float* out);
// Rounds 64 numbers to 32 pairs.
void RoundToPairs(Stream& stream, const float* in, uint32_t* out);

// Computes d = a b by MultiplyAdd: a [16, 16] and b [16, 8] of bfloat16, d [16, 8].
void Multiply(Stream& stream, const uint16_t* a, const uint16_t* b, float* d);

// The same in int8: a [16, 32], b [32, 8], d [16, 8]. Some lanes take no part if `some_return`.
void MultiplyInt8(Stream& stream, const int8_t* a, const int8_t* b, bool some_return, int32_t* d);

// Computes d = a b by a warpgroup: a [64, 32] and b [32, 128] of bfloat16, d [64, 128]. The faults
// are those that kernels/simt/warpgroup.h forbids.
enum class GroupFault {
  kNone,
  kNoneInBulk,       // nor is there one if bulk copies bring what is multiplied
  kNoneByColumns,    // nor if b lies by columns
  kNoneByFragments,  // nor if a is in registers
  kNotShared,        // what was written is not shared with products
  kSharedTooLate,    // it is, but without a barrier behind
  kNotBegun,         // the series of products is not begun
  kUsedTooEarly,     // d is used before the products were waited for
  kChangedTooEarly,  // an operand is overwritten before that
  kFragmentChanged,  // so is one in registers
  kChangedByOthers,  // an operand is overwritten without a barrier after waiting
  kNotWaited,        // the kernel ends before they are done
};
void MultiplyByGroup(Stream& stream, const uint16_t* a, const uint16_t* b, GroupFault fault,
                     float* d);

// Adds to each of 128 numbers its index, in a launch that overlaps the one before and waits for it
// first, or too late, or not at all.
enum class WaitPlace { kFirst, kAfterReading, kAfterWriting, kInHalfTheBlock, kNowhere };
void AddIndexOverlapping(Stream& stream, WaitPlace place, float* values);

// Copies 128 numbers by accesses of 16 bytes, to which `in` and `out` must be aligned.
void MoveByFours(Stream& stream, const float* in, float* out);
// Copies 64 numbers by accesses of 2 bytes.
void MoveByHalves(Stream& stream, const uint16_t* in, uint16_t* out);

// Copies the first of each `stride` numbers, 64 in all.
void Gather(Stream& stream, const float* in, int32_t stride, float* out);

// Copies 32 numbers through shared memory, in which they are `stride` numbers apart (at most 32),
// by one access a lane, or by 8 lanes that access 16 bytes each.
void Spread(Stream& stream, const float* in, int32_t stride, float* out);
void SpreadByFours(Stream& stream, const float* in, int32_t stride, float* out);
// Copies the first of 32 numbers through shared memory to all 32.
void Broadcast(Stream& stream, const float* in, float* out);

// Counts 64 threads of each of 2 blocks in shared memory, `counters` (at most 32) numbers, of which
// lane i increments number i % counters, and then adds these to out [counters].
void CountInShared(Stream& stream, int32_t counters, int32_t* out);

}  // namespace sluice::kernels::cuda::planted
