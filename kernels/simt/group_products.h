// The implementation of kernels/simt/warpgroup.h in the emulator; included by it.
//
// A product runs in two halves, so that a missing wait or barrier is found. When it is issued, its
// sums are computed separately and d is filled with NaN. d gets the sums when the product is waited
// for. The operands are read when the product is issued and again when it is waited for. It is a
// fault if they change, or are the target of a copy, in between. It is also a fault if their writer
// has not shared them with products.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
struct GroupOperand;
enum class GroupOrder;
}  // namespace sluice::kernels::cuda

namespace sluice::simt {

// The unfinished products of a thread. Device code calls its methods.
class GroupProducts {
 public:
  void Clear();
  bool empty() const { return products_.empty(); }

  void Begin() { begun_ = true; }
  // Operand a is in memory, or in the lane's 4 registers at `fragment` if that is not nullptr.
  void Issue(float* d, int32_t columns, const kernels::cuda::GroupOperand& a,
             const uint32_t* fragment, const kernels::cuda::GroupOperand& b,
             kernels::cuda::GroupOrder order, const kernels::cuda::CallSite& site);
  void Commit();
  // If `d` is not null, it must be the sums of a product that is then done.
  void Wait(int pending_groups, const float* d, const kernels::cuda::CallSite& site);

 private:
  static constexpr int32_t kPieceBytes = 16;
  // A piece of an operand that this thread reads, with its content.
  struct OperandBytes {
    const std::byte* from;
    std::byte seen[kPieceBytes];
  };
  struct Product {
    float* d;
    int64_t group;
    std::vector<OperandBytes> pieces;
    const uint32_t* fragment;
    uint32_t seen[4];  // in the fragment
  };

  bool begun_ = false;
  int64_t groups_ = 0;  // committed
  std::vector<Product> products_;
  std::map<float*, std::vector<float>> sums_;  // of unfinished products, by d
};

void ShareWithProducts();
void BeginProducts();
void MultiplyAddGroup(float* d, int32_t columns, const kernels::cuda::GroupOperand& a,
                      const kernels::cuda::GroupOperand& b, kernels::cuda::GroupOrder order,
                      const kernels::cuda::CallSite& site);
void MultiplyAddGroup(float* d, int32_t columns, const uint32_t* fragment,
                      const kernels::cuda::GroupOperand& b, const kernels::cuda::CallSite& site);
void CommitProducts();
void WaitProducts(int pending_groups, const float* d, const kernels::cuda::CallSite& site);

}  // namespace sluice::simt

namespace sluice::kernels::cuda {

inline void ShareWithProducts() { simt::ShareWithProducts(); }
inline void BeginProducts() { simt::BeginProducts(); }
template <int32_t kColumns, GroupOrder kOrder>
void MultiplyAddGroup(float (&d)[kColumns / 2], const GroupOperand& a, const GroupOperand& b,
                      CallSite site) {
  simt::MultiplyAddGroup(d, kColumns, a, b, kOrder, site);
}
template <int32_t kColumns>
void MultiplyAddGroup(float (&d)[kColumns / 2], const uint32_t (&a)[4], const GroupOperand& b,
                      CallSite site) {
  simt::MultiplyAddGroup(d, kColumns, a, b, site);
}
inline void CommitProducts() { simt::CommitProducts(); }
template <int kPending>
void WaitProducts(CallSite site) {
  simt::WaitProducts(kPending, nullptr, site);
}
template <int kPending, int32_t kSums>
void WaitProducts(float (&d)[kSums], CallSite site) {
  simt::WaitProducts(kPending, d, site);
}

}  // namespace sluice::kernels::cuda
