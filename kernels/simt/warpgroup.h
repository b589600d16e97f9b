// Additions to kernels/simt/simt.h for device code for GPUs of compute capability 9.0 (sm_90a): the
// matrix products of a warpgroup, which is 4 consecutive warps, the first a multiple of 4. The
// tensor cores read both operands from shared memory and run while the warps continue.
//
//   BringOperands(stage);              // by all threads
//   WaitCopies<0>();
//   ShareWithProducts();
//   SyncBlock();
//   BeginProducts();
//   MultiplyAddGroup<128>(d, a, b);    // any number of times
//   CommitProducts();
//   WaitProducts<0>();                 // from here on d may be used, and after another barrier
//   SyncBlock();                       // the operands' memory as well
//
// The semantics are the same as for wgmma in the PTX ISA ("Asynchronous Warpgroup Level Matrix
// Instructions"). Code that uses this header is also compiled for other GPUs, but without a body.
// SLUICE_HAS_PRODUCTS is defined only for targets that have the products.
#pragma once

#include "kernels/simt/simt.h"

#if defined(SLUICE_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SLUICE_HAS_PRODUCTS
#endif

namespace sluice::kernels::cuda {

inline constexpr int32_t kGroupRows = 64, kGroupDepth = 16, kGroupThreads = 128;

// The layout of operand b [16, columns] in memory.
enum class GroupOrder { kByDepths, kByColumns };

// An operand in shared memory: matrices of 8 by 8 bfloat16. Each matrix is 128 contiguous bytes and
// begins at a multiple of 16. For a [64, 16], a matrix is 8 rows of 8 depths. For b, it is 8 depths
// of 8 columns, or, by columns, 8 columns of 8 depths. The distances between matrices are multiples
// of 16 bytes.
struct GroupOperand {
  const void* first;
  int32_t along_depth;  // in bytes, to the matrix of the next 8 depths
  int32_t across;       // in bytes, to the matrix of the next 8 rows or columns
};

// Makes the calling thread's writes to shared memory, and its copies that it has waited for,
// visible to products that are issued after another barrier.
__device__ void ShareWithProducts();

// Begins a series of products. They run after earlier uses of their sums.
__device__ void BeginProducts();
// Queues d += a b, collectively for a warpgroup, distributed over it: d[4 c + 2 i + j] is row 16
// (Warp() % 4) + Lane() / 4 + 8 i, column 8 c + Lane() % 4 * 2 + j. Each element is one sum. Its
// products are added 16 at a time, in the order of the calls. Until the product has been waited
// for, d must not be used and the operands must not change.
template <int32_t kColumns, GroupOrder kOrder = GroupOrder::kByDepths>  // 64, 128
__device__ void MultiplyAddGroup(float (&d)[kColumns / 2], const GroupOperand& a,
                                 const GroupOperand& b, CallSite site = CallSite::Here());
// Queues d += a b as above, for a in registers and b by depths. Each warp passes its 16 rows of a
// in the layout of MultiplyAdd (kernels/simt/simt.h). The registers must not change until the
// product has been waited for. On a GPU the compiler assumes that the registers are read when the
// product is queued, and may reuse them. So load the registers of the next product only after the
// wait.
template <int32_t kColumns>  // 32, 64, 128, 256
__device__ void MultiplyAddGroup(float (&d)[kColumns / 2], const uint32_t (&a)[4],
                                 const GroupOperand& b, CallSite site = CallSite::Here());
// Ends the current group of products, which may be empty.
__device__ void CommitProducts();
// Waits until all but the last `kPending` groups of the calling warp are done. The groups of other
// warps may still run, so the operands' memory may change only after another barrier.
template <int kPending>
__device__ void WaitProducts(CallSite site = CallSite::Here());
// Does the same. `d` are the sums of a product that is then done. On a GPU they are operands of the
// wait, so that the compiler moves no use of them above it.
template <int kPending, int32_t kSums>  // 16, 32, 64, 128 sums
__device__ void WaitProducts(float (&d)[kSums], CallSite site = CallSite::Here());

}  // namespace sluice::kernels::cuda

#ifdef SLUICE_SIMT
#include "kernels/simt/group_products.h"
#else
#include "kernels/simt/warpgroup_nvcc.h"
#endif
