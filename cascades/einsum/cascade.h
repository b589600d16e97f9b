// Cascades of extended einsums: a device-independent description of a computation on tensors.
//
// An einsum computes one tensor, point by point of its ranks:
//
//   N[p, m] = S[p, m] . G[p] :: map -(left) unary exp
//   D[p] = N[p, m] :: reduce m +(or) where m <= p
//
// `map` combines the operands (an Op, and a Merge that determines the visited points). Then `unary`
// is applied to each value, and `reduce` combines the values along a rank that the result does not
// have. A cascade is a list of einsums; each may read the results of earlier ones. An iterative
// cascade computes its body once for every point of a rank, in ascending order, and may read
// results of the previous iteration:
//
//   iterate c {
//     init R[p, 0] = -inf
//     R[p, c+1] = R[p, c] . L[p, c] :: map max(or)
//   }
//
// The notation is from FuseMax (arXiv 2406.10491), in ASCII; text.h reads and prints it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/enum_names.h"

namespace sluice::einsum {

// An operation on two values, or on many by repetition.
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

// The points that an action visits: points where both operands have a value, where either one has,
// where the left one has, or all points. A point outside an operand's shape or excluded by a
// condition has no value.
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
// the registers and nearest cache of one worker. The last causes no traffic if it fits.
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

// Returns the rank of an index that is a single rank, or nullptr. The pointer is into the index.
const std::string* SingleRank(const Index& index);

enum class Comparison { kLess, kLessEqual, kEqual };

constexpr auto EnumNamesOf(Comparison) {
  using enum Comparison;
  return EnumNameTable<Comparison>({{kLess, "<"}, {kLessEqual, "<="}, {kEqual, "=="}});
}

// Excludes the points that do not satisfy the condition.
struct Condition {
  Index left;
  Comparison comparison;
  Index right;

  bool operator==(const Condition&) const = default;
};

// Returns whether a side of the condition has a term of the rank.
bool NamesRank(const Condition& condition, std::string_view rank);

struct Tensor {
  std::string name;
  std::vector<std::string> ranks;
  Home home = Home::kArena;
  // The dtype's size, for traffic; a tensor of the KV cache or of weights may be narrower than f32.
  // It may be fractional if values share scales.
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
  // For two operands; `map` is ignored if there is only one.
  Op map = Op::kMultiply;
  Merge map_merge = Merge::kAnd;
  Function unary = Function::kNone;
  std::vector<Reduction> reduce = {};
  std::vector<Condition> where = {};

  bool operator==(const Einsum&) const = default;
};

// Computes `init` once, then `body` for each point of `rank` in ascending order, up to the end of
// the rank. The carried tensors have one place more in `rank` than its size.
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

// The limits of Check.
inline constexpr int64_t kMaxRanks = 64;
inline constexpr int64_t kMaxTensors = 256;
inline constexpr int64_t kMaxStatements = 256;  // an iteration counts as its einsums
inline constexpr int64_t kMaxRanksOfTensor = 16;
inline constexpr int64_t kMaxTermsOfIndex = 8;
inline constexpr int64_t kMaxConditions = 16;
inline constexpr int64_t kMaxNameLength = 64;
inline constexpr int64_t kMaxNumber = int64_t{1} << 31;  // a factor, an offset or a divisor

// Returns InvalidArgument, with the statement that is wrong, unless the cascade is valid:
//   - Ranks are declared. A name is a letter, then letters, digits and '_', and not a word of the
//     notation. Each access has an index for every rank of its tensor.
//   - An einsum writes a tensor that no earlier one wrote, at indices that are single ranks, and
//     reads inputs and earlier results. It iterates over the ranks of its result and its reduced
//     ranks, which differ.
//   - A difference or a quotient has no value at a point without a left operand, so its merge is
//     not `or`. The merge of a quotient is not `all` either. Reductions of one einsum have the same
//     operation and merge, which is `or` or `all`.
//   - In an iteration over r, `init` writes the carried tensors at 0 of r, and `body` writes them
//     at r+1 and every other tensor at r. A body reads its own results at r, or at r+1 after it
//     wrote them there.
absl::Status Check(const Cascade& cascade);

// Returns the listed tensors, then the results that are not listed, which live in kTile. This
// function and the following ones require a cascade that Check accepts.
std::vector<Tensor> AllTensors(const Cascade& cascade);

// An einsum and the iteration that contains it, or null.
struct PlacedEinsum {
  const Einsum* einsum;
  const Iteration* iteration = nullptr;
  bool is_init = false;
};

// Returns all einsums, in order.
std::vector<PlacedEinsum> AllEinsums(const Cascade& cascade);

// Returns the ranks that the einsum iterates over: the ranks of its result, in its order, then its
// reduced ranks. In a body, the rank of the iteration is one of them.
std::vector<std::string> RanksOf(const Einsum& einsum);

// Returns whether an operand of the einsum is the tensor.
bool Reads(const Einsum& einsum, std::string_view tensor);

// Returns the position in the tensor of the rank that the iteration carries it along, or -1.
int64_t CarriedPosition(const Iteration& iteration, const std::string& tensor);

}  // namespace sluice::einsum
