#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/simt/machine.h"
#include "kernels/simt/product_sums.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::simt {
namespace {

using kernels::cuda::CallSite;
using kernels::cuda::GroupOperand;
using kernels::cuda::GroupOrder;
using kernels::cuda::kGroupDepth;

constexpr int32_t kWarpRows = 16, kMatrix = 8, kRowBytes = 16, kGroupWarps = 4;

Machine& Current() {
  Machine* const machine = Machine::Current();
  SLUICE_CHECK(machine != nullptr);
  return *machine;
}

// Return the address of 8 neighbouring elements. RowOfA: the depths of a row of operand a, or of a
// column of operand b stored by columns. RowOfB: the columns of a depth of operand b stored by
// depths.
const std::byte* RowOfA(const GroupOperand& a, int32_t row, int32_t depth_block) {
  return static_cast<const std::byte*>(a.first) + row / kMatrix * a.across +
         depth_block * a.along_depth + row % kMatrix * kRowBytes;
}
const std::byte* RowOfB(const GroupOperand& b, int32_t depth, int32_t column_block) {
  return static_cast<const std::byte*>(b.first) + column_block * b.across +
         depth / kMatrix * b.along_depth + depth % kMatrix * kRowBytes;
}

// Returns the address of piece `i` of operand b, which has two pieces for each column.
const std::byte* PieceOfB(const GroupOperand& b, GroupOrder order, int32_t i) {
  if (order == GroupOrder::kByColumns) return RowOfA(b, i / 2, i % 2);
  return RowOfB(b, i % kGroupDepth, i / kGroupDepth);
}

float ElementAt(const std::byte* row, int32_t i) {
  uint16_t bits;
  std::memcpy(&bits, row + i * sizeof(bits), sizeof(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// The arguments that each lane of a warp passes to a product.
struct GroupInputs {
  GroupOperand a;
  const uint32_t* fragment;  // of a, or nullptr
  GroupOperand b;
  GroupOrder order;  // of b
  int32_t columns;
  int32_t first_row;  // of the warp
};

// Returns element [row, k] of a warp's operand a. The lanes hold its parts in the order of
// MultiplyAdd.
float ElementOfFragments(const void* const in[32], int32_t row, int32_t k) {
  const auto& lane = *static_cast<const GroupInputs*>(in[row % 8 * 4 + k % 8 / 2]);
  const uint32_t word = lane.fragment[row / 8 + 2 * (k / 8)];
  return std::bit_cast<float>(k % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
}

void MultiplyGroupLanes(const void* const in[32], void* const out[32]) {
  const auto& inputs = *static_cast<const GroupInputs*>(in[0]);
  Factors a[kWarpRows];
  for (int32_t row = 0; row < kWarpRows; ++row) {
    for (int32_t k = 0; k < kGroupDepth; ++k) {
      if (inputs.fragment != nullptr) {
        a[row].Set(k, ElementOfFragments(in, row, k));
        continue;
      }
      const std::byte* const from = RowOfA(inputs.a, inputs.first_row + row, k / kMatrix);
      a[row].Set(k, ElementAt(from, k % kMatrix));
    }
  }
  for (int32_t column = 0; column < inputs.columns; ++column) {
    Factors b;
    for (int32_t k = 0; k < kGroupDepth; ++k) {
      b.Set(k, inputs.order == GroupOrder::kByColumns
                   ? ElementAt(RowOfA(inputs.b, column, k / kMatrix), k % kMatrix)
                   : ElementAt(RowOfB(inputs.b, k, column / kMatrix), column % kMatrix));
    }
    for (int32_t row = 0; row < kWarpRows; ++row) {
      const int32_t lane = row % 8 * 4 + column % 8 / 2;
      float& sum = static_cast<float*>(out[lane])[column / 8 * 4 + row / 8 * 2 + column % 2];
      sum = AddProducts(a[row], b, sum);
    }
  }
  if (CostMeter* meter = CostMeter::Current()) meter->Product();
}

void MeetOnly(const void* const[32], void* const[32]) {}

}  // namespace

void GroupProducts::Clear() {
  begun_ = false;
  groups_ = 0;
  products_.clear();
  sums_.clear();
}

void GroupProducts::Issue(float* d, int32_t columns, const GroupOperand& a,
                          const uint32_t* fragment, const GroupOperand& b, GroupOrder order,
                          const CallSite& site) {
  Machine& machine = Current();
  const OutsideDeviceCode outside;
  if (!begun_) machine.Fail("multiplies without BeginProducts");
  const int32_t first_row = machine.thread() / 32 % kGroupWarps * kWarpRows;
  Product product = {.d = d, .group = groups_, .pieces = {}, .fragment = fragment, .seen = {}};
  if (fragment != nullptr) std::memcpy(product.seen, fragment, sizeof(product.seen));
  // The lanes of the warp share the work of reading its rows of a and all of b.
  const int32_t lane = machine.thread() % 32;
  const int32_t rows = fragment == nullptr ? 2 * kWarpRows : 0;
  const int32_t pieces = rows + kGroupDepth * columns / kMatrix;
  for (int32_t i = lane; i < pieces; i += 32) {
    const std::byte* const from =
        i < rows ? RowOfA(a, first_row + i / 2, i % 2) : PieceOfB(b, order, i - rows);
    machine.ReadForProduct(from, kPieceBytes, /*issued=*/true);
    OperandBytes& piece = product.pieces.emplace_back(OperandBytes{.from = from, .seen = {}});
    std::memcpy(piece.seen, from, kPieceBytes);
  }
  products_.push_back(std::move(product));
  std::vector<float>& sums = sums_.try_emplace(d, d, d + columns / 2).first->second;
  std::fill_n(d, columns / 2, std::numeric_limits<float>::quiet_NaN());
  const GroupInputs inputs = {a, fragment, b, order, columns, first_row};
  machine.Collective(&MultiplyGroupLanes, &inputs, sums.data(), site.file, site.line);
}

void GroupProducts::Commit() {
  ++groups_;
  begun_ = false;
}

void GroupProducts::Wait(int pending_groups, const float* d, const CallSite& site) {
  Machine& machine = Current();
  const OutsideDeviceCode outside;
  machine.Collective(&MeetOnly, nullptr, nullptr, site.file, site.line);
  const auto done = std::find_if(products_.begin(), products_.end(), [&](const Product& product) {
    return product.group >= groups_ - pending_groups;
  });
  for (auto product = products_.begin(); product != done; ++product) {
    if (product->fragment != nullptr &&
        std::memcmp(product->seen, product->fragment, sizeof(product->seen)) != 0) {
      machine.Fail("multiplies operands that change before it waits");
    }
    for (const OperandBytes& piece : product->pieces) {
      machine.ReadForProduct(piece.from, kPieceBytes, /*issued=*/false);
      if (std::memcmp(piece.seen, piece.from, kPieceBytes) != 0) {
        machine.Fail("multiplies operands that change before it waits");
      }
    }
  }
  products_.erase(products_.begin(), done);
  if (d != nullptr && std::ranges::find(products_, d, &Product::d) != products_.end()) {
    machine.Fail("names sums in a wait that leaves their product queued");
  }
  for (auto sums = sums_.begin(); sums != sums_.end();) {
    const auto uses = [&](const Product& product) { return product.d == sums->first; };
    if (std::any_of(products_.begin(), products_.end(), uses)) {
      ++sums;
      continue;
    }
    std::copy(sums->second.begin(), sums->second.end(), sums->first);
    sums = sums_.erase(sums);
  }
}

void ShareWithProducts() { Current().ShareWithProducts(); }
void BeginProducts() { Current().products().Begin(); }
void MultiplyAddGroup(float* d, int32_t columns, const GroupOperand& a, const GroupOperand& b,
                      GroupOrder order, const CallSite& site) {
  Current().products().Issue(d, columns, a, nullptr, b, order, site);
}
void MultiplyAddGroup(float* d, int32_t columns, const uint32_t* fragment, const GroupOperand& b,
                      const CallSite& site) {
  Current().products().Issue(d, columns, {}, fragment, b, GroupOrder::kByDepths, site);
}
void CommitProducts() { Current().products().Commit(); }
void WaitProducts(int pending_groups, const float* d, const CallSite& site) {
  Current().products().Wait(pending_groups, d, site);
}

}  // namespace sluice::simt
