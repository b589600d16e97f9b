// The properties of a cascade that can be found without running it: the role of each rank of an
// einsum, the number of reads of a fiber, and the amounts that must be moved, kept and computed.
//
//   const auto analysis = Analyze(cascade, {{"tokens", 1}, {"context", 4096}, {"head_dim", 128}});
//   analysis->passes                     // 3
//   analysis->per_pass[0].traffic.loads  // in bytes, by home
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

// The role of a rank in an einsum: in both operands and the result; in one operand and the result;
// in both operands and reduced; in one of them and reduced; only in the result; or the rank of the
// iteration.
enum class Role { kBatch, kLeft, kRight, kContraction, kReduced, kBroadcast, kIterated };

constexpr auto EnumNamesOf(Role) {
  using enum Role;
  return EnumNameTable<Role>({{kBatch, "batch"},
                              {kLeft, "left"},
                              {kRight, "right"},
                              {kContraction, "contraction"},
                              {kReduced, "reduced"},
                              {kBroadcast, "broadcast"},
                              {kIterated, "iterated"}});
}

// The library call that computes an einsum:
//   - kGemm, kGemv, kDot: a sum of products with free ranks on both sides, on one side, on none.
//   - kGroupedGemm: a kGemm whose operands both have a batch rank. One call has a separate matrix,
//     such as the weight of a position, for each group of rows.
//   - kOuterProduct: a product with free ranks on both sides.
//   - kReduction, kElementwise: any other reduction, any other map.
//   - kPermute, kCopy: one operand with its ranks in another order, in the same order.
enum class Mapping {
  kGemm,
  kGroupedGemm,
  kGemv,
  kDot,
  kOuterProduct,
  kReduction,
  kElementwise,
  kPermute,
  kCopy
};

constexpr auto EnumNamesOf(Mapping) {
  using enum Mapping;
  return EnumNameTable<Mapping>({{kGemm, "GEMM"},
                                 {kGroupedGemm, "grouped GEMM"},
                                 {kGemv, "GEMV"},
                                 {kDot, "dot product"},
                                 {kOuterProduct, "outer product"},
                                 {kReduction, "reduction"},
                                 {kElementwise, "elementwise"},
                                 {kPermute, "permute"},
                                 {kCopy, "copy"}});
}

struct RankRole {
  std::string rank;
  Role role;

  bool operator==(const RankRole&) const = default;
};

struct EinsumRoles {
  std::vector<RankRole> roles;  // in the order of RanksOf
  Mapping mapping = Mapping::kCopy;

  // Returns the ranks with the role, in order. In a GEMM these are kBatch, kLeft (M), kRight (N)
  // and kContraction (K).
  std::vector<std::string> With(Role role) const;
};

// Returns the roles. `iterated` is the rank of the iteration that contains the einsum in its body.
EinsumRoles RolesOf(const Einsum& einsum, std::string_view iterated = "");

// Returns the mapping with its ranks: "grouped GEMM b x d x e for each l" (M x K x N).
std::string Describe(const EinsumRoles& roles);

// A rank, and all ranks whose size has the same symbol: m and c of m = c*512+j. A rank of a
// partition with a constant size, such as j, is a family of its own.
//
// Returns how often a fiber of the family is traversed from its beginning, or 0 if no einsum
// iterates over it. The level of an einsum is the greatest level of its operands. It is one more if
// an operand was reduced over a rank of the family and the einsum iterates again over the same
// fiber, that is, over a dimension of the same input. An iteration's rank does not raise the level:
// everything that a body reads is ready in time. A carried tensor that is read after its iteration
// counts as reduced. If an iteration traverses the fiber again for each of its places, only some
// passes are counted.
int Passes(const Cascade& cascade, std::string_view rank_or_symbol);

// A result that lacks ranks that its reader iterates over, so that it is computed once for all of
// them: |v|^2 lacks the query head within its group. Ranks that it lost by reduction don't count.
struct Hoist {
  std::string tensor;
  std::string reader;
  std::vector<std::string> ranks;

  bool operator==(const Hoist&) const = default;
};

std::vector<Hoist> Hoists(const Cascade& cascade);

// Bytes by home; 0 for kTile.
struct Traffic {
  std::array<double, CountEnumerators<Home>()> loads = {};
  std::array<double, CountEnumerators<Home>()> stores = {};

  double LoadsOf(Home home) const { return loads[static_cast<size_t>(home)]; }
  double StoresOf(Home home) const { return stores[static_cast<size_t>(home)]; }
};

// Counts of operations. Tanh, log and the like count as exponentials, square roots as divisions.
struct Work {
  double flops = 0;
  double exponentials = 0;
  double divisions = 0;
};

struct EinsumFacts {
  std::string result;
  bool is_init = false;
  EinsumRoles roles;
  int level = 0;      // the pass over the stream, from 0
  double points = 0;  // that have a value
  Work work;
};

struct TensorFacts {
  Tensor tensor;
  bool is_input = false;
  std::vector<int64_t> shape;
  // The ranks with all places live at the same time. Other ranks have one live place, which is
  // consumed before the next is produced.
  std::vector<std::string> live_ranks;
  double live_bytes = 0;  // for one place of the ranks that are not live
  std::string replaces;   // the operand that it overwrites, because nothing reads it later
  int first_level = 0;    // of its writer, or first reader if it is an input
  int last_level = 0;     // of its last reader
  // Bytes, over all passes. An input is loaded once in each pass that reads it. Tensors in a tile
  // are neither loaded nor stored.
  double loads = 0;
  double stores = 0;
};

struct PassFacts {
  Traffic traffic;
  Work work;
  double footprint_bytes = 0;  // live bytes of the tensors in tiles that the pass needs
};

struct Analysis {
  std::string stream;  // the symbol, or else the rank, whose passes are counted
  int passes = 0;
  std::vector<PassFacts> per_pass;
  std::vector<EinsumFacts> einsums;  // in the order of AllEinsums
  std::vector<TensorFacts> tensors;  // in the order of AllTensors
  std::vector<Hoist> hoists;
  Traffic traffic;  // of all passes
  Work work;
  double footprint_bytes = 0;  // of the pass with the greatest
};

// Returns the facts at these sizes. An einsum has points only where its operands do, see
// CarryConditions (conditions.h). The stream is the given rank or symbol. If none is given, it is
// the largest reduced or iterated rank, preferably one that no output has. Returns InvalidArgument
// if the cascade is wrong, a size is missing, no rank is the stream, CarryConditions fails, or the
// counting of points takes more than kMaxCountingSteps (point_count.h).
absl::StatusOr<Analysis> Analyze(const Cascade& cascade, const Sizes& sizes,
                                 std::string_view stream = "");

}  // namespace sluice::einsum
