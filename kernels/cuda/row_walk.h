// The division of work on rows over a grid: each thread has one item of a row, such as a pack of
// elements, and visits it in every row that its block takes. So values that depend only on the item
// are computed once for all rows.
//
//   template <typename T>
//   __global__ void DoubleKernel(OverRows<DoubleArgs<T>> args) {
//     const RowWalk walk(args);
//     if (walk.item >= args.op.dim) return;
//     for (int32_t r = walk.row; r < *args.op.rows.count; r += walk.step) {...}
//   }
//   LaunchOverRows(stream, kDouble<T>, args, args.dim);
#pragma once

#include "kernels/cuda/bring.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// The arguments of an op, and the division of a grid of parts * step blocks.
template <typename Args>
struct OverRows {
  Args op;
  int32_t parts;  // blocks a row
  int32_t step;   // rows that are visited at a time
};

struct RowWalk {
  // Waits for the previous launch; these kernels overlap it.
  template <typename Args>
  __device__ explicit RowWalk(const OverRows<Args>& args)
      : row(BlockIndex() / args.parts),
        step(args.step),
        item((BlockIndex() - row * args.parts) * BlockThreads() + ThreadIndex()) {
    WaitForPrevious();
  }

  int32_t row;   // the first one
  int32_t step;  // from one row to the next
  int32_t item;
};

// Launches a kernel of OverRows<Args> for rows of `items` items.
template <typename Args>
void LaunchOverRows(Stream& stream, const Kernel& kernel, const Args& args, int32_t items) {
  constexpr int32_t kMaxThreads = 256, kResidentThreads = 2048, kMaxResident = 32;
  const int32_t warps = items < kMaxThreads ? (items + kWarp - 1) / kWarp : kMaxThreads / kWarp;
  const int32_t threads = (warps > 0 ? warps : 1) * kWarp;
  const int32_t parts = items > threads ? (items + threads - 1) / threads : 1;
  const int32_t resident = kResidentThreads / threads;
  const int32_t blocks = PersistentBlocks(stream, int64_t{args.rows.capacity} * parts,
                                          resident < kMaxResident ? resident : kMaxResident);
  const int32_t step = blocks > parts ? blocks / parts : 1;
  Launch(stream, kernel, {.blocks = parts * step, .threads = threads, .overlaps_previous = true},
         OverRows<Args>{args, parts, step});
}

// Launches `wide`, whose threads have a pack of elements each, over rows of `width` elements if all
// rows are `aligned` (RowsAligned). Otherwise launches `narrow`, whose threads have one element.
template <typename T, typename Args>
void LaunchOverElements(Stream& stream, const Kernel& wide, const Kernel& narrow, const Args& args,
                        int32_t width, bool aligned) {
  if (aligned) return LaunchOverRows(stream, wide, args, width / kCopyElements<T>);
  LaunchOverRows(stream, narrow, args, width);
}

}  // namespace sluice::kernels::cuda
