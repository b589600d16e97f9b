#include "cascades/einsum/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sluice::einsum {
namespace {

double Apply(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return a / b;
    case Op::kMax:
      return std::max(a, b);
    case Op::kMin:
      return std::min(a, b);
  }
  SLUICE_CHECK(false);
}

double Apply(Function function, double x) {
  switch (function) {
    case Function::kNone:
      return x;
    case Function::kExp:
      return std::exp(x);
    case Function::kLog:
      return std::log(x);
    case Function::kSqrt:
      return std::sqrt(x);
    case Function::kTanh:
      return std::tanh(x);
    case Function::kAbs:
      return std::abs(x);
    case Function::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Function::kGelu:
      return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    case Function::kRelu:
      return std::max(x, 0.0);
    case Function::kCos:
      return std::cos(x);
    case Function::kSin:
      return std::sin(x);
  }
  SLUICE_CHECK(false);
}

// Returns the value of a reduction over no points.
double IdentityOf(Op op) {
  switch (op) {
    case Op::kMultiply:
      return 1;
    case Op::kMax:
      return -std::numeric_limits<double>::infinity();
    case Op::kMin:
      return std::numeric_limits<double>::infinity();
    default:
      return 0;
  }
}

bool Holds(int64_t left, Comparison comparison, int64_t right) {
  switch (comparison) {
    case Comparison::kLess:
      return left < right;
    case Comparison::kLessEqual:
      return left <= right;
    case Comparison::kEqual:
      return left == right;
  }
  SLUICE_CHECK(false);
}

std::optional<double> Combine(Op op, Merge merge, std::optional<double> a,
                              std::optional<double> b) {
  if (a && b) return Apply(op, *a, *b);
  switch (merge) {
    case Merge::kAnd:
      return std::nullopt;
    case Merge::kOr:
      return a ? a : b;
    case Merge::kLeft:
      return a;
    case Merge::kAll:
      return Apply(op, a.value_or(0), b.value_or(0));
  }
  SLUICE_CHECK(false);
}

// A tensor with the points that have a value.
struct Stored {
  Values values;
  std::vector<uint8_t> has_value;
};

// An index as a sum over the ranks of an einsum.
struct LinearIndex {
  std::vector<std::pair<size_t, int64_t>> terms;  // the number of the rank, and the factor
  int64_t offset = 0;

  int64_t At(const std::vector<int64_t>& point) const {
    int64_t sum = offset;
    for (const auto& [rank, factor] : terms) sum += point[rank] * factor;
    return sum;
  }
};

struct BoundAccess {
  double constant = 0;
  Stored* tensor = nullptr;  // null for a constant
  std::vector<LinearIndex> indices = {};

  // Returns the position in the tensor's values, or nothing outside its shape.
  std::optional<int64_t> PositionAt(const std::vector<int64_t>& point) const {
    int64_t position = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t index = indices[i].At(point);
      const int64_t size = tensor->values.shape[i];
      if (index < 0 || index >= size) return std::nullopt;
      position = position * size + index;
    }
    return position;
  }

  std::optional<double> ValueAt(const std::vector<int64_t>& point) const {
    if (tensor == nullptr) return constant;
    const std::optional<int64_t> position = PositionAt(point);
    if (!position || !tensor->has_value[*position]) return std::nullopt;
    return tensor->values.values[*position];
  }
};

struct BoundCondition {
  LinearIndex left;
  Comparison comparison;
  LinearIndex right;
};

// An einsum with its ranks as numbers: first the ranks of the result, then the reduced ranks.
struct BoundEinsum {
  const Einsum* einsum;
  std::vector<int64_t> begin;  // of each rank
  std::vector<int64_t> end;
  size_t result_ranks = 0;
  int64_t iterated = -1;  // the number of the iteration's rank, or -1
  BoundAccess out = {};
  std::vector<BoundAccess> in = {};
  std::vector<BoundCondition> where = {};
};

// Moves `point` on along the ranks from `first` to `last`, and returns false at their end.
bool Advance(const BoundEinsum& bound, size_t first, size_t last, std::vector<int64_t>* point) {
  for (size_t i = last; i > first; --i) {
    if (++(*point)[i - 1] < bound.end[i - 1]) return true;
    (*point)[i - 1] = bound.begin[i - 1];
  }
  return false;
}

std::optional<double> Part(const BoundEinsum& bound, const std::vector<int64_t>& point) {
  for (const BoundCondition& each : bound.where) {
    if (!Holds(each.left.At(point), each.comparison, each.right.At(point))) return std::nullopt;
  }
  std::optional<double> value = bound.in[0].ValueAt(point);
  if (bound.in.size() == 2) {
    value = Combine(bound.einsum->map, bound.einsum->map_merge, value, bound.in[1].ValueAt(point));
  }
  if (value) value = Apply(bound.einsum->unary, *value);
  return value;
}

// Computes the point of the result at `point`, and leaves `point` unchanged.
void ComputePoint(const BoundEinsum& bound, std::vector<int64_t>* point) {
  std::optional<double> result;
  const auto& reduce = bound.einsum->reduce;
  do {
    std::optional<double> part = Part(bound, *point);
    if (!part && !reduce.empty() && reduce[0].merge == Merge::kAll) part = 0;
    if (!part) continue;
    result = result ? Apply(reduce[0].op, *result, *part) : part;
  } while (Advance(bound, bound.result_ranks, bound.end.size(), point));
  const std::optional<int64_t> position = bound.out.PositionAt(*point);
  SLUICE_CHECK(position.has_value());
  const double identity = reduce.empty() ? 0 : IdentityOf(reduce[0].op);
  bound.out.tensor->values.values[*position] = result.value_or(identity);
  bound.out.tensor->has_value[*position] = result.has_value();
}

void Compute(const BoundEinsum& bound) {
  std::vector<int64_t> point = bound.begin;
  do {
    ComputePoint(bound, &point);
  } while (Advance(bound, 0, bound.result_ranks, &point));
}

class Machine {
 public:
  Machine(const Cascade& cascade, const Sizes& sizes) : cascade_(cascade), sizes_(sizes) {}

  absl::StatusOr<NamedValues> Run(const NamedValues& inputs) {
    for (const Rank& rank : cascade_.ranks) {
      SLUICE_ASSIGN_OR_RETURN(size_of_[rank.name], SizeOf(rank, sizes_));
    }
    SLUICE_RETURN_IF_ERROR(CountPoints());
    SLUICE_RETURN_IF_ERROR(MakeTensors(inputs));
    for (const Statement& statement : cascade_.statements) {
      std::visit([this](const auto& each) { Execute(each); }, statement);
    }
    NamedValues results;
    for (const PlacedEinsum& each : AllEinsums(cascade_)) {
      const std::string& name = each.einsum->out.tensor;
      if (!results.contains(name)) results[name] = std::move(tensors_[name].values);
    }
    return results;
  }

 private:
  absl::Status CountPoints() const {
    int64_t points = 0;
    for (const PlacedEinsum& each : AllEinsums(cascade_)) {
      int64_t own = 1;
      for (const std::string& rank : RanksOf(*each.einsum)) {
        if (own <= kMaxPoints) own *= size_of_.at(rank);
      }
      if (own <= kMaxPoints) points += own;
      if (own <= kMaxPoints && points <= kMaxPoints) continue;
      return absl::ResourceExhaustedError(absl::StrCat("einsum '", each.einsum->out.tensor,
                                                       "' brings the cascade to more than ",
                                                       kMaxPoints, " points"));
    }
    return absl::OkStatus();
  }

  absl::Status MakeTensors(const NamedValues& inputs) {
    absl::flat_hash_map<std::string, PlacedEinsum> results;
    for (const PlacedEinsum& each : AllEinsums(cascade_)) {
      results.try_emplace(each.einsum->out.tensor, each);  // an iteration's `init` comes first
    }
    int64_t total = 0;
    for (const Tensor& tensor : AllTensors(cascade_)) {
      std::vector<int64_t> shape;
      shape.reserve(tensor.ranks.size());
      for (const std::string& rank : tensor.ranks) shape.push_back(size_of_.at(rank));
      const auto result = results.find(tensor.name);
      if (result != results.end() && result->second.is_init) {
        ++shape[CarriedPosition(*result->second.iteration, tensor.name)];
      }
      SLUICE_ASSIGN_OR_RETURN(const int64_t volume, VolumeOf(tensor.name, shape));
      total += volume;
      if (total > kMaxPoints) return TooLarge(tensor.name);
      Stored& stored = tensors_[tensor.name];
      if (result != results.end()) {
        stored = {{shape, std::vector<double>(volume)}, std::vector<uint8_t>(volume)};
        continue;
      }
      const auto input = inputs.find(tensor.name);
      if (input == inputs.end()) {
        return absl::InvalidArgumentError(absl::StrCat("input '", tensor.name, "' is missing"));
      }
      if (input->second.shape != shape || std::ssize(input->second.values) != volume) {
        return absl::InvalidArgumentError(absl::StrCat(
            "input '", tensor.name, "' has the shape [", absl::StrJoin(input->second.shape, ", "),
            "] and ", input->second.values.size(), " values, not [", absl::StrJoin(shape, ", "),
            "]"));
      }
      stored = {input->second, std::vector<uint8_t>(volume, 1)};
    }
    return absl::OkStatus();
  }

  static absl::Status TooLarge(const std::string& tensor) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "tensor '", tensor, "' brings the cascade to more than ", kMaxPoints, " values"));
  }

  static absl::StatusOr<int64_t> VolumeOf(const std::string& tensor,
                                          const std::vector<int64_t>& shape) {
    int64_t volume = 1;
    for (const int64_t size : shape) {
      volume *= size;
      if (volume > kMaxPoints) return TooLarge(tensor);
    }
    return volume;
  }

  void Execute(const Einsum& einsum) { Compute(Bind(einsum)); }

  void Execute(const Iteration& iteration) {
    for (const Einsum& einsum : iteration.init) Compute(Bind(einsum));
    std::vector<BoundEinsum> body;
    body.reserve(iteration.body.size());
    for (const Einsum& einsum : iteration.body) body.push_back(Bind(einsum, iteration.rank));
    for (int64_t i = 0; i < size_of_.at(iteration.rank); ++i) {
      for (BoundEinsum& bound : body) {
        bound.begin[bound.iterated] = i;
        bound.end[bound.iterated] = i + 1;
        Compute(bound);
      }
    }
  }

  BoundEinsum Bind(const Einsum& einsum, const std::string& iterated = "") {
    const std::vector<std::string> ranks = RanksOf(einsum);
    BoundEinsum bound{.einsum = &einsum,
                      .begin = std::vector<int64_t>(ranks.size()),
                      .end = {},
                      .result_ranks = ranks.size() - einsum.reduce.size()};
    for (size_t i = 0; i < ranks.size(); ++i) {
      bound.end.push_back(size_of_.at(ranks[i]));
      if (ranks[i] == iterated) bound.iterated = static_cast<int64_t>(i);
    }
    bound.out = Bind(einsum.out, ranks);
    for (const Access& access : einsum.in) bound.in.push_back(Bind(access, ranks));
    for (const Condition& each : einsum.where) {
      bound.where.push_back({Bind(each.left, ranks), each.comparison, Bind(each.right, ranks)});
    }
    return bound;
  }

  BoundAccess Bind(const Access& access, const std::vector<std::string>& ranks) {
    if (access.is_constant()) return {.constant = access.constant};
    BoundAccess bound{.tensor = &tensors_.at(access.tensor)};
    for (const Index& index : access.indices) bound.indices.push_back(Bind(index, ranks));
    return bound;
  }

  LinearIndex Bind(const Index& index, const std::vector<std::string>& ranks) const {
    LinearIndex bound{.terms = {}, .offset = index.offset};
    if (!index.end_of.empty()) bound.offset += size_of_.at(index.end_of);
    for (const Index::Term& term : index.terms) {
      const auto rank = std::ranges::find(ranks, term.rank) - ranks.begin();
      bound.terms.push_back({static_cast<size_t>(rank), term.factor});
    }
    return bound;
  }

  const Cascade& cascade_;
  const Sizes& sizes_;
  Sizes size_of_;  // each rank
  absl::flat_hash_map<std::string, Stored> tensors_;
};

}  // namespace

absl::StatusOr<int64_t> SizeOf(const Rank& rank, const Sizes& sizes) {
  int64_t size = rank.size.divisor;
  if (!rank.size.symbol.empty()) {
    const auto found = sizes.find(rank.size.symbol);
    if (found == sizes.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank '", rank.name, "': '", rank.size.symbol, "' has no size"));
    }
    size = found->second;
  }
  if (size < 1 || size > kMaxNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank '", rank.name, "': ", size, " is not a size"));
  }
  if (rank.size.symbol.empty()) return size;
  return (size + rank.size.divisor - 1) / rank.size.divisor;
}

absl::StatusOr<NamedValues> Interpret(const Cascade& cascade, const Sizes& sizes,
                                      const NamedValues& inputs) {
  SLUICE_RETURN_IF_ERROR(Check(cascade));
  return Machine(cascade, sizes).Run(inputs);
}

}  // namespace sluice::einsum
