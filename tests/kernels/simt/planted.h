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

// Reverses 128 numbers through shared memory, with or without the necessary barrier.
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

// Doubles 256 numbers. They come in two phases of two bulk copies each to the same place.
enum class BulkUse {
  kRight,
  kWaitInOneThread,      // the other threads neither wait nor pass a barrier
  kNoWait,               // no thread waits
  kNoBarrierBeforeInit,  // the arrival is used before other threads see that it is prepared
  kNoBarrierBetween,     // the second phase starts while threads may read the first phase's data
  kHalfTheBlock,         // half of the threads do not start the copies
  kNoWaitAtTheEnd,       // the block ends before the second phase has arrived
  kByWarps,          // also correct: each half comes from one warp, and a copy of 0 bytes counts
  kByOthers,         // warps copy, but the arrival was prepared for the block
  kWritten,          // also correct: the target is written between the phases
  kWrittenUnshared,  // the same without ShareWithCopies
  kSharedTooLate,    // the same with ShareWithCopies after the barrier
};
void DoubleInBulk(Stream& stream, const float* in, BulkUse use, float* out);

// Writes the address of shared memory modulo kSharedAlignment.
void PlaceOfShared(Stream& stream, int32_t* out);

// Sums 64 numbers of each of `blocks` blocks. Each block adds its own numbers and writes the sum to
// `sums` [blocks]. Another thread of the last block, found by `counter` (initially 0), adds up the
// sums.
enum class FenceUse {
  kRight,
  kNotBefore,         // the sum is not published to other blocks
  kNotAfter,          // the last block does not see the sums
  kBeforeTheBarrier,  // a thread's fence does not cover another thread's later writes
  kNoBarrierAfter,    // a thread reads that has not observed the sums
};
void SumOverBlocks(Stream& stream, const float* in, int32_t blocks, FenceUse use, float* sums,
                   int32_t* counter, float* out);

// Counts with an atomic addition, or with a plain one.
void Count(Stream& stream, bool atomically, int32_t blocks, int32_t* counter);

// Counts, for each of 32 numbers, the equal numbers. Lanes whose number is 0 take no part if
// `some_return`.
void MatchLanesOf(Stream& stream, const uint32_t* in, bool some_return, int32_t* equal);

// Copies 32 rows of 8 numbers to shared memory, loads them as four matrices, and writes the values
// of each lane: out [32, 4] pairs.
enum class Rows { kWritten, kWithoutBarrier, kNotAligned, kInGlobalMemory };
void LoadRows(Stream& stream, const uint16_t* in, Rows rows, bool transposed, uint32_t* out);

// Computes Exp2 of 32 numbers. Divides the result by itself if `divided`; the quotient is 1 if it
// is not subnormal.
void PowersOfTwo(Stream& stream, const float* in, bool divided, float* out);
// Rounds 64 numbers to 32 pairs.
void RoundToPairs(Stream& stream, const float* in, uint32_t* out);

// Computes d = a b by MultiplyAdd: a [16, 16] and b [16, 8] of bfloat16, d [16, 8].
void Multiply(Stream& stream, const uint16_t* a, const uint16_t* b, float* d);

// The same in int8: a [16, 32], b [32, 8], d [16, 8]. Some lanes take no part if `some_return`.
void MultiplyInt8(Stream& stream, const int8_t* a, const int8_t* b, bool some_return, int32_t* d);

// Computes d = a b by a warpgroup: a [64, 32] and b [32, 128] of bfloat16, d [64, 128].
// kernels/simt/warpgroup.h forbids each of the faults.
enum class GroupFault {
  kNone,
  kNoneInBulk,       // also correct: bulk copies bring the operands
  kNoneByColumns,    // also correct: b is stored by columns
  kNoneByFragments,  // also correct: a is in registers
  kNotShared,        // the written operands are not shared with products
  kSharedTooLate,    // they are shared, but no barrier follows
  kNotBegun,         // BeginProducts is not called
  kNamedTooEarly,    // d is named in a wait that leaves its product queued
  kUsedTooEarly,     // d is used before the products were waited for
  kChangedTooEarly,  // an operand is overwritten before that wait
  kFragmentChanged,  // an operand in registers is overwritten before that wait
  kChangedByOthers,  // an operand is overwritten without a barrier after waiting
  kNotWaited,        // the kernel ends before they are done
};
void MultiplyByGroup(Stream& stream, const uint16_t* a, const uint16_t* b, GroupFault fault,
                     float* d);

// Adds to each of 128 numbers its index, in a launch that overlaps the previous one. It waits for
// the previous launch first, too late, or not at all.
enum class WaitPlace { kFirst, kAfterReading, kAfterWriting, kInHalfTheBlock, kNowhere };
void AddIndexOverlapping(Stream& stream, WaitPlace place, float* values);

// Copies 128 numbers by accesses of 16 bytes. `in` and `out` must be aligned to 16 bytes.
void MoveByFours(Stream& stream, const float* in, float* out);
// Copies 64 numbers by accesses of 2 bytes.
void MoveByHalves(Stream& stream, const uint16_t* in, uint16_t* out);

// Copies the first of each `stride` numbers, 64 in all.
void Gather(Stream& stream, const float* in, int32_t stride, float* out);

// Copies 32 numbers through shared memory, where they are `stride` numbers apart (at most 32), by
// one access a lane, or by 8 lanes that access 16 bytes each.
void Spread(Stream& stream, const float* in, int32_t stride, float* out);
void SpreadByFours(Stream& stream, const float* in, int32_t stride, float* out);
// Copies the first of 32 numbers through shared memory to all 32.
void Broadcast(Stream& stream, const float* in, float* out);

// Counts 64 threads of each of 2 blocks in shared memory, in `counters` (at most 32) numbers. Lane
// i increments number i % counters. Then adds these to out [counters].
void CountInShared(Stream& stream, int32_t counters, int32_t* out);

}  // namespace sluice::kernels::cuda::planted
