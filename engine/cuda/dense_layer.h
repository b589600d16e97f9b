// Dense layers by a library of the vendor (cuBLASLt), as an alternative to our own kernel
// (kernels/cuda/projection.h).
//
//   out[r, :] = f(x[r, :] W + bias  (+ out[r, :] if accumulate)), sums in float, rounded once
//
// or, in int8, out[r, :] = x[r, :] W in int32, exactly; ScaleSums (kernels/cuda/int8.h) does the
// rest.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/enum_names.h"
#include "engine/computed_rows.h"

namespace sluice {

class DeviceStream;

// The functions f of kernels/activation_kind.h that a library has.
enum class DenseActivation { kNone, kRelu, kGeluTanh };
constexpr auto EnumNamesOf(DenseActivation) {
  using enum DenseActivation;
  return EnumNameTable<DenseActivation>(
      {{kNone, "none"}, {kRelu, "relu"}, {kGeluTanh, "gelu_tanh"}});
}

// The type of x and the weight. Except for int8, also the type of the bias and of outputs other
// than logits.
enum class DenseType { kF32, kBF16, kInt8 };
constexpr auto EnumNamesOf(DenseType) {
  using enum DenseType;
  return EnumNameTable<DenseType>({{kF32, "f32"}, {kBF16, "bf16"}, {kInt8, "int8"}});
}

// The key that selects a family of algorithms. It does not contain the number of rows, because the
// bits of a row must not depend on other rows.
struct DenseShape {
  int32_t k;
  int32_t n;
  DenseType type;
  bool bias;
  bool accumulate;
  bool head = false;  // whether out is logits: always float, and few rows
  DenseActivation activation = DenseActivation::kNone;

  constexpr bool half() const { return type == DenseType::kBF16; }
  constexpr bool int8() const { return type == DenseType::kInt8; }
  constexpr bool half_out() const { return half() && !head; }
  constexpr int64_t operand_bytes() const { return int8() ? 1 : half() ? 2 : 4; }  // an element
  constexpr int64_t out_bytes() const { return half_out() ? 2 : 4; }
  auto operator<=>(const DenseShape&) const = default;
};

// The largest number of rows of a head that an algorithm computes at a time.
inline constexpr int32_t kMaxHeadRows = 256;
// In int8, sums pass through memory and should stay in a cache; this number takes 16 MiB. Fewer
// rows than the minimum would not keep a GPU busy.
inline constexpr int32_t kInt8Sums = 4 << 20, kMinInt8Slice = 1024;
constexpr int32_t MaxInt8Rows(int32_t n) {
  const auto rows = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(kInt8Sums / n)));
  return std::clamp(rows, kMinInt8Slice, kMaxDenseRows);
}
constexpr int32_t MaxRows(const DenseShape& shape) {
  return shape.head ? kMaxHeadRows : shape.int8() ? MaxInt8Rows(shape.n) : kMaxDenseRows;
}
// The least number of rows. A library may have no algorithm for 16 rows of int8 or fewer.
inline constexpr int32_t kMinInt8Rows = 32;
constexpr int32_t MinRows(const DenseShape& shape) { return shape.int8() ? kMinInt8Rows : 1; }

constexpr int32_t TriedRows(const DenseShape& shape, int32_t rows) {
  return TriedRows(std::max(rows, MinRows(shape)));
}

// The numbers of rows are divided into classes, each up to one of these numbers. A library's best
// algorithm depends on the number of rows, so each class may have an algorithm of its own.
inline constexpr int32_t kClassEnds[] = {16, 64, 256, 1024, kMaxDenseRows};
struct RowClass {
  int32_t first, last;  // tried numbers of rows

  auto operator<=>(const RowClass&) const = default;
};
// Returns the classes of a shape by ascending rows. A class that the shape never uses is left out.
inline std::vector<RowClass> ClassesOf(const DenseShape& shape) {
  std::vector<RowClass> classes;
  int32_t first = MinRows(shape);
  for (const int32_t end : kClassEnds) {
    const int32_t last = std::min(end, MaxRows(shape));
    if (last < first) continue;
    classes.push_back({TriedRows(shape, first), last});
    first = last + 1;
  }
  return classes;
}

// Returns the numbers of rows that an algorithm of a class must be able to compute: of the class
// and one beyond each edge, or all of them for the largest class.
constexpr RowClass WithEdges(const DenseShape& shape, const RowClass& rows) {
  if (rows.last == MaxRows(shape)) return {MinRows(shape), rows.last};
  int32_t before = rows.first;
  while (before > MinRows(shape) && TriedRows(shape, before - 1) == rows.first) --before;
  return {std::max(MinRows(shape), before - 1), TriedRows(shape, rows.last + 1)};
}

// Returns the rows that a layer computes for a bucket of `rows` rows: slices of kMaxDenseRows, then
// a tried number of rows, at least `least`, for the remainder.
constexpr int64_t DenseRows(int64_t rows, int32_t least = 1) {
  const auto rest = static_cast<int32_t>(rows % kMaxDenseRows);
  return rows - rest + (rest == 0 ? 0 : TriedRows(std::max(rest, least)));
}
// Returns the most rows that a layer in int8 computes.
constexpr int64_t Int8DenseRows(int64_t rows) { return DenseRows(rows, kMinInt8Rows); }
// Returns the most sums that a layer in int8 of up to `width` columns keeps at a time.
constexpr int64_t Int8Sums(int64_t rows, int64_t width) {
  return std::min(Int8DenseRows(rows) * width, std::max<int64_t>(kInt8Sums, kMinInt8Slice * width));
}

// The largest workspace of a layer.
inline constexpr size_t kMaxWorkspaceBytes = size_t{32} << 20;

// The arguments of a layer, on the device.
struct DenseArgs {
  const void* x;       // [rows, k], 256-byte aligned, like all
  const void* weight;  // [k, n]; in int8 [n, k]
  const void* bias;    // [n]; nullptr unless the shape has one
  int32_t rows;        // a tried number of the shape; all are computed, live or not
  void* out;           // [rows, n]; must not overlap x
  // Memory of workspace_bytes() with any content. Nothing else may use it while the layer runs.
  void* workspace = nullptr;
};

// An algorithm in the format of its library: valid for the same version of the library on the same
// kind of device.
using DenseAlgorithm = std::array<uint64_t, 8>;

// The names of a family's algorithms.
struct DenseAlgorithms {
  DenseAlgorithm reference = {};
  std::map<int32_t, DenseAlgorithm> of_classes = {};  // by the last number of rows of the class

  bool operator==(const DenseAlgorithms&) const = default;
};

// One algorithm for one shape, for one class of rows or for all. Its device outlives it.
class DenseLayer {
 public:
  virtual ~DenseLayer() = default;
  // Queues the layer; may be captured. The stream reports failures.
  virtual void Run(const DenseArgs& args, DeviceStream& stream) const = 0;
  virtual size_t workspace_bytes() const = 0;  // up to kMaxWorkspaceBytes
  virtual DenseAlgorithm algorithm() const = 0;
  virtual std::string Describe() const = 0;  // the algorithm, for logs and notes of tables
};

// The algorithms of a shape. All of them give a row the same bits.
class DenseFamily {
 public:
  // `reference` computes the largest class, and each class that has no algorithm of its own.
  DenseFamily(const DenseShape& shape, std::unique_ptr<DenseLayer> reference)
      : reference_(std::move(reference)) {
    for (const RowClass& rows : ClassesOf(shape)) members_.push_back({rows, nullptr});
  }

  // Sets the algorithm of the class that ends with `last` rows.
  void Set(int32_t last, std::unique_ptr<DenseLayer> layer) {
    std::ranges::find(members_, last, [](const Member& member) { return member.rows.last; })->own =
        std::move(layer);
  }

  const DenseLayer& reference() const { return *reference_; }
  // Returns the layer for a tried number of rows.
  const DenseLayer& For(int32_t rows) const {
    for (const Member& member : members_) {
      if (rows <= member.rows.last) return member.own == nullptr ? *reference_ : *member.own;
    }
    return *reference_;
  }
  // Calls f(rows, layer) for each class, with nullptr if the class uses the reference.
  template <typename Function>
  void ForEachClass(Function f) const {
    for (const Member& member : members_) f(member.rows, member.own.get());
  }
  DenseAlgorithms algorithms() const {
    DenseAlgorithms names = {.reference = reference_->algorithm()};
    ForEachClass([&](const RowClass& rows, const DenseLayer* own) {
      if (own != nullptr) names.of_classes[rows.last] = own->algorithm();
    });
    return names;
  }
  // Returns the most workspace that a layer needs.
  size_t workspace_bytes() const {
    size_t bytes = reference_->workspace_bytes();
    ForEachClass([&](const RowClass&, const DenseLayer* own) {
      if (own != nullptr) bytes = std::max(bytes, own->workspace_bytes());
    });
    return bytes;
  }

 private:
  struct Member {
    RowClass rows;
    std::unique_ptr<DenseLayer> own;
  };
  std::unique_ptr<DenseLayer> reference_;
  std::vector<Member> members_;
};

}  // namespace sluice
