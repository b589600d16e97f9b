// Cascades of extended einsums: what a computation on tensors does, apart from any device.
//
// An einsum computes one tensor, point by point of its ranks:
//
//   N[p, m] = S[p, m] . G[p] :: map -(left) unary exp
//   D[p] = N[p, m] :: reduce m +(or) where m <= p
//
// The operands are combined by `map` (an Op, and a Merge that says which points are visited),
// then each value passes through `unary`, and `reduce` combines the values along a rank that the
// result does not have. A cascade is a list of einsums of which each may read the results of those
// before it. An iterative cascade computes its body once for every point of a rank, in ascending
// order, and may read what the iteration before left behind:
//
//   iterate c {
//     init R[p, 0] = -inf
//     R[p, c+1] = R[p, c] . L[p, c] :: map max(or)
//   }
//
// The notation is that of FuseMax (arXiv 2406.10491) in ASCII; text.h reads and prints it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/enum_names.h"

namespace sluice::einsum {

// An operation on two values, and by repetition on many.
enum class Op { kAdd, kSubtract, kMultiply, kDivide, kMax, kMin };

constexpr auto EnumNamesOf(Op) {
  using enum Op;
  return EnumNameTable<Op>({{kAdd, "+"},
                            {kSubtract, "-"},
                            {kMultiply, "x"},
                            {kDivide, "/"},
                            {kMax, "max"},
                            {kMin, "min"}});
}

// The points that an action visits: those where both operands have a value, where either has one,
// where the left one has, or all. A point outside an operand's shape or excluded by a condition has
// no value.
enum class Merge { kAnd, kOr, kLeft, kAll };

constexpr auto EnumNamesOf(Merge) {
  using enum Merge;
  return EnumNameTable<Merge>({{kAnd, "and"}, {kOr, "or"}, {kLeft, "left"}, {kAll, "all"}});
}

enum class Function { kNone, kExp, kLog, kSqrt, kTanh, kAbs, kSigmoid, kGelu, kRelu, kCos, kSin };

constexpr auto EnumNamesOf(Function) {
  using enum Function;
  return EnumNameTable<Function>({{kNone, "none"},
                                  {kExp, "exp"},
                                  {kLog, "log"},
                                  {kSqrt, "sqrt"},
                                  {kTanh, "tanh"},
                                  {kAbs, "abs"},
                                  {kSigmoid, "sigmoid"},
                                  {kGelu, "gelu"},
                                  {kRelu, "relu"},
                                  {kCos, "cos"},
                                  {kSin, "sin"}});
}

// Where a tensor lives: among the model's weights, in the KV pages, in the arena of a step, or in
// the registers and nearest cache of one worker, which count as no traffic while they fit.
enum class Home { kWeight, kKv, kArena, kTile };

constexpr auto EnumNamesOf(Home) {
  using enum Home;
  return EnumNameTable<Home>(
      {{kWeight, "weight"}, {kKv, "kv"}, {kArena, "arena"}, {kTile, "tile"}});
}

// The size of a rank: ceil(symbol / divisor), or `divisor` if the symbol is empty. Symbols are
// words such as tokens, context, heads, kv_heads, group, head_dim, hidden, vocab and position.
struct Size {
  std::string symbol;
  int64_t divisor = 1;

  bool operator==(const Size&) const = default;
};

struct Rank {
  std::string name;  // a letter, or letters and digits
  Size size;

  bool operator==(const Rank&) const = default;
};

// An index into a tensor or a side of a condition: the sum of the terms and the offset.
struct Index {
  struct Term {
    std::string rank;
    int64_t factor = 1;

    bool operator==(const Term&) const = default;
  };
  std::vector<Term> terms;
  int64_t offset = 0;
  std::string end_of = {};  // if not empty, the size of this rank is added

  bool operator==(const Index&) const = default;
};

enum class Comparison { kLess, kLessEqual, kEqual };

constexpr auto EnumNamesOf(Comparison) {
  using enum Comparison;
  return EnumNameTable<Comparison>({{kLess, "<"}, {kLessEqual, "<="}, {kEqual, "=="}});
}

// Excludes the points where it does not hold.
struct Condition {
  Index left;
  Comparison comparison;
  Index right;

  bool operator==(const Condition&) const = default;
};

struct Tensor {
  std::string name;
  std::vector<std::string> ranks;
  Home home = Home::kArena;
  // The dtype's size, for traffic; a tensor of the KV cache or of weights may be narrower than f32.
  // It is no integer where values share scales.
  double bytes_per_value = 4;

  bool operator==(const Tensor&) const = default;
};

// A tensor at some indices, one for each of its ranks, or a constant.
struct Access {
  std::string tensor;  // empty for a constant
  std::vector<Index> indices = {};
  double constant = 0;

  bool is_constant() const { return tensor.empty(); }
  bool operator==(const Access&) const = default;
};

struct Reduction {
  std::string rank;
  Op op;  // not kSubtract or kDivide
  Merge merge = Merge::kOr;

  bool operator==(const Reduction&) const = default;
};

struct Einsum {
  Access out;
  std::vector<Access> in;  // one or two
  // Of two operands; with one, `map` means nothing.
  Op map = Op::kMultiply;
  Merge map_merge = Merge::kAnd;
  Function unary = Function::kNone;
  std::vector<Reduction> reduce = {};
  std::vector<Condition> where = {};

  bool operator==(const Einsum&) const = default;
};

// Computes `init` once, then `body` for each point of `rank` in ascending order, and stops at the
// end of the rank. The tensors that it carries along have one place more in `rank` than its size.
struct Iteration {
  std::string rank;
  std::vector<Einsum> init;
  std::vector<Einsum> body;

  bool operator==(const Iteration&) const = default;
};

using Statement = std::variant<Einsum, Iteration>;

struct Cascade {
  std::string name;
  std::vector<Rank> ranks;
  std::vector<Tensor> tensors;  // inputs, intermediates and outputs; a result not listed is kTile
  std::vector<Statement> statements;

  bool operator==(const Cascade&) const = default;
};

// What Check accepts at most.
inline constexpr int64_t kMaxRanks = 64;
inline constexpr int64_t kMaxTensors = 256;
inline constexpr int64_t kMaxStatements = 256;  // an iteration counts as its einsums
inline constexpr int64_t kMaxRanksOfTensor = 16;
inline constexpr int64_t kMaxTermsOfIndex = 8;
inline constexpr int64_t kMaxConditions = 16;
inline constexpr int64_t kMaxNameLength = 64;
inline constexpr int64_t kMaxNumber = int64_t{1} << 31;  // a factor, an offset or a divisor

// Returns InvalidArgument, with the statement that is wrong, unless the cascade has a meaning:
//   - Ranks are declared. A name is a letter, then letters, digits and '_', and no word of the
//     notation. Each access has an index for every rank of its tensor.
//   - An einsum writes a tensor that nothing wrote before, at indices that are single ranks, and
//     reads inputs and earlier results. The ranks that it iterates over are those of its result and
//     those that it reduces, which differ.
//   - A difference or a quotient has no value where it has no left operand, so that its merge is
//     not `or`; a quotient's is not `all` either. Reductions of one einsum have the same operation
//     and merge, which is `or` or `all`.
//   - In an iteration over r, `init` writes the carried tensors at 0 of r, and `body` writes them
//     at r+1 and every other tensor at r. A body reads its own results at r, or at r+1 after it
//     wrote them there.
absl::Status Check(const Cascade& cascade);

// Returns the listed tensors, then the results that are not listed, which live in kTile. Requires a
// cascade that Check accepts, as the functions below do.
std::vector<Tensor> AllTensors(const Cascade& cascade);

// An einsum and the iteration to which it belongs, or null.
struct PlacedEinsum {
  const Einsum* einsum;
  const Iteration* iteration = nullptr;
  bool is_init = false;
};

// Returns all einsums, in order.
std::vector<PlacedEinsum> AllEinsums(const Cascade& cascade);

// Returns the ranks over which the einsum iterates: those of its result, in its order, and those
// that it reduces. The rank of the iteration is one of them in a body.
std::vector<std::string> RanksOf(const Einsum& einsum);

// Returns whether an operand of the einsum is of the tensor.
bool Reads(const Einsum& einsum, std::string_view tensor);

// Returns the position in the tensor of the rank along which the iteration carries it, or -1.
int64_t CarriedPosition(const Iteration& iteration, const std::string& tensor);

}  // namespace sluice::einsum
