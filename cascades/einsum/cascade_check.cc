#include "cascades/einsum/cascade.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::einsum {
namespace {

constexpr std::string_view kWords[] = {"cascade", "rank",   "tensor", "iterate", "init", "where",
                                       "map",     "reduce", "unary",  "end",     "inf"};

bool IsName(std::string_view name) {
  return !name.empty() && std::ssize(name) <= kMaxNameLength && absl::ascii_isalpha(name[0]) &&
         std::ranges::all_of(name, [](char c) { return absl::ascii_isalnum(c) || c == '_'; }) &&
         std::ranges::find(kWords, name) == std::end(kWords);
}

template <typename T>
auto Piece(const T& value) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    return std::string(value);
  } else {
    return value;
  }
}

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(Piece(args)...));
}

std::string Quoted(std::string_view name) {
  return absl::StrCat("'", absl::CHexEscape(std::string(name.substr(0, kMaxNameLength))), "'");
}

absl::Status CheckName(std::string_view what, std::string_view name) {
  if (IsName(name)) return absl::OkStatus();
  return Invalid(what, " ", Quoted(name), ": not a name (a letter, then letters, digits and '_')");
}

bool IsNumber(int64_t value) { return value >= -kMaxNumber && value <= kMaxNumber; }

bool IsRank(const Index& index, std::string_view rank) {
  const std::string* single = SingleRank(index);
  return single != nullptr && *single == rank;
}

// Returns whether the index is rank + 1.
bool IsNext(Index index, std::string_view rank) {
  if (index.offset != 1) return false;
  index.offset = 0;
  return IsRank(index, rank);
}

bool IsZero(const Index& index) {
  return index.terms.empty() && index.end_of.empty() && index.offset == 0;
}

class Checker {
 public:
  explicit Checker(const Cascade& cascade) : cascade_(cascade) {}

  absl::Status Run() {
    if (!cascade_.name.empty()) SLUICE_RETURN_IF_ERROR(CheckName("cascade", cascade_.name));
    SLUICE_RETURN_IF_ERROR(CheckLimits());
    for (const Rank& rank : cascade_.ranks) SLUICE_RETURN_IF_ERROR(CheckRank(rank));
    for (const Tensor& tensor : cascade_.tensors) SLUICE_RETURN_IF_ERROR(CheckTensor(tensor));
    std::set<std::string_view> results;
    for (const PlacedEinsum& each : AllEinsums(cascade_)) results.insert(each.einsum->out.tensor);
    for (auto& [name, state] : tensors_) state.readable = !results.contains(name);
    for (size_t i = 0; i < cascade_.statements.size(); ++i) {
      statement_ = absl::StrCat("statement ", i + 1);
      SLUICE_RETURN_IF_ERROR(std::visit([this](const auto& each) { return CheckStatement(each); },
                                        cascade_.statements[i]));
    }
    if (std::ssize(tensors_) > kMaxTensors) return TooMany("tensors", kMaxTensors);
    return absl::OkStatus();
  }

 private:
  struct TensorState {
    const Tensor* declared = nullptr;
    int64_t arity = 0;
    bool is_written = false;
    // Whether everything that follows may read it, at any index.
    bool readable = false;
    // In the iteration being checked: the position of its rank, or -1, and the readable places.
    int64_t position = -1;
    bool is_carried = false;
    bool is_written_in_body = false;
  };

  static absl::Status TooMany(std::string_view what, int64_t limit) {
    return Invalid("the cascade has more than ", limit, " ", what);
  }

  absl::Status CheckLimits() const {
    if (std::ssize(cascade_.ranks) > kMaxRanks) return TooMany("ranks", kMaxRanks);
    if (std::ssize(cascade_.tensors) > kMaxTensors) return TooMany("tensors", kMaxTensors);
    if (std::ssize(cascade_.statements) > kMaxStatements ||
        std::ssize(AllEinsums(cascade_)) > kMaxStatements) {
      return TooMany("statements", kMaxStatements);
    }
    return absl::OkStatus();
  }

  absl::Status CheckRank(const Rank& rank) {
    SLUICE_RETURN_IF_ERROR(CheckName("rank", rank.name));
    if (!rank.size.symbol.empty()) {
      SLUICE_RETURN_IF_ERROR(CheckName("size", rank.size.symbol));
    }
    if (rank.size.divisor < 1 || rank.size.divisor > kMaxNumber) {
      return Invalid("rank ", Quoted(rank.name), ": ", rank.size.divisor,
                     rank.size.symbol.empty() ? " is not a size" : " is not a divisor");
    }
    if (!ranks_.insert(rank.name).second) {
      return Invalid("rank ", Quoted(rank.name), " is declared twice");
    }
    return absl::OkStatus();
  }

  absl::Status CheckTensor(const Tensor& tensor) {
    SLUICE_RETURN_IF_ERROR(CheckName("tensor", tensor.name));
    if (std::ssize(tensor.ranks) > kMaxRanksOfTensor) {
      return Invalid("tensor ", Quoted(tensor.name), " has more than ", kMaxRanksOfTensor,
                     " ranks");
    }
    for (const std::string& rank : tensor.ranks) {
      if (!ranks_.contains(rank)) {
        return Invalid("tensor ", Quoted(tensor.name), ": rank ", Quoted(rank), " is not declared");
      }
    }
    if (!(tensor.bytes_per_value >= 0.125 && tensor.bytes_per_value <= 16)) {
      return Invalid("tensor ", Quoted(tensor.name), ": a value has 0.125 to 16 bytes, not ",
                     tensor.bytes_per_value);
    }
    if (tensors_.contains(tensor.name)) {
      return Invalid("tensor ", Quoted(tensor.name), " is declared twice");
    }
    tensors_[tensor.name] = {.declared = &tensor, .arity = std::ssize(tensor.ranks)};
    return absl::OkStatus();
  }

  // Returns an error that begins with the place of the einsum in the cascade.
  template <typename... Args>
  absl::Status Wrong(const Args&... args) const {
    return Invalid(statement_, ": ", args...);
  }

  absl::Status CheckStatement(const Einsum& einsum) {
    NameStatement(einsum);
    SLUICE_RETURN_IF_ERROR(CheckEinsum(einsum));
    for (const Index& index : einsum.out.indices) {
      if (SingleRank(index) == nullptr) return Wrong("an index of the result is not a single rank");
    }
    SLUICE_RETURN_IF_ERROR(Write(einsum, ""));
    tensors_[einsum.out.tensor].readable = true;
    return absl::OkStatus();
  }

  absl::Status CheckStatement(const Iteration& iteration) {
    const std::string place = statement_;
    if (!ranks_.contains(iteration.rank)) {
      return Wrong("it iterates over rank ", Quoted(iteration.rank), ", which is not declared");
    }
    if (iteration.body.empty()) return Wrong("the iteration's body is empty");
    for (const Einsum& einsum : iteration.init) {
      statement_ = absl::StrCat(place, ", init");
      NameStatement(einsum);
      SLUICE_RETURN_IF_ERROR(CheckInit(einsum, iteration));
    }
    for (const Einsum& einsum : iteration.init) {
      TensorState& state = tensors_[einsum.out.tensor];
      state.is_carried = true;
      state.is_written = false;
    }
    for (const Einsum& einsum : iteration.body) {
      statement_ = absl::StrCat(place, ", body");
      NameStatement(einsum);
      SLUICE_RETURN_IF_ERROR(CheckBody(einsum, iteration));
    }
    statement_ = place;
    for (const Einsum& einsum : iteration.init) {
      if (tensors_[einsum.out.tensor].is_written_in_body) continue;
      return Wrong("the body does not write ", Quoted(einsum.out.tensor), ", which `init` writes");
    }
    for (const Einsum& einsum : iteration.body) {
      tensors_[einsum.out.tensor].readable = true;
    }
    return absl::OkStatus();
  }

  void NameStatement(const Einsum& einsum) {
    absl::StrAppend(&statement_, " (",
                    absl::CHexEscape(einsum.out.tensor.substr(0, kMaxNameLength)), ")");
  }

  absl::Status CheckInit(const Einsum& einsum, const Iteration& iteration) {
    SLUICE_RETURN_IF_ERROR(CheckEinsum(einsum));
    int64_t position = -1;
    for (int64_t i = 0; i < std::ssize(einsum.out.indices); ++i) {
      if (IsZero(einsum.out.indices[i]) && position < 0) {
        position = i;
      } else if (SingleRank(einsum.out.indices[i]) == nullptr) {
        return Wrong("an index of the result is neither a single rank nor the only 0");
      }
    }
    if (position < 0) return Wrong("`init` does not write at 0 of ", Quoted(iteration.rank));
    SLUICE_RETURN_IF_ERROR(Write(einsum, iteration.rank));
    tensors_[einsum.out.tensor].position = position;
    return absl::OkStatus();
  }

  absl::Status CheckBody(const Einsum& einsum, const Iteration& iteration) {
    SLUICE_RETURN_IF_ERROR(CheckEinsum(einsum, iteration.rank));
    const auto found = tensors_.find(einsum.out.tensor);
    const bool is_carried =
        found != tensors_.end() && found->second.is_carried && !found->second.readable;
    int64_t position = -1;
    for (int64_t i = 0; i < std::ssize(einsum.out.indices); ++i) {
      const Index& index = einsum.out.indices[i];
      if (is_carried ? IsNext(index, iteration.rank) : IsRank(index, iteration.rank)) {
        position = i;
      } else if (SingleRank(index) == nullptr) {
        return Wrong("an index of the result is not a single rank", is_carried ? " or " : "",
                     is_carried ? iteration.rank + "+1" : "");
      }
    }
    if (position < 0 || (is_carried && position != found->second.position)) {
      return Wrong("the result is not written at ", iteration.rank, is_carried ? "+1" : "",
                   is_carried ? ", where `init` begins it" : "");
    }
    SLUICE_RETURN_IF_ERROR(Write(einsum, iteration.rank));
    TensorState& state = tensors_[einsum.out.tensor];
    state.position = position;
    state.is_written_in_body = true;
    return absl::OkStatus();
  }

  // Records the result. `carried_rank` is the rank of an index that is a constant.
  absl::Status Write(const Einsum& einsum, const std::string& carried_rank) {
    SLUICE_RETURN_IF_ERROR(CheckName(statement_ + ": tensor", einsum.out.tensor));
    std::set<std::string_view> seen;
    for (const Index& index : einsum.out.indices) {
      const std::string& rank = index.terms.empty() ? carried_rank : index.terms[0].rank;
      if (!seen.insert(rank).second) return Wrong("the result has rank ", Quoted(rank), " twice");
    }
    TensorState& state = tensors_[einsum.out.tensor];
    if (state.is_written) {
      return Wrong(Quoted(einsum.out.tensor), " is written a second time");
    }
    state.is_written = true;
    state.arity = std::ssize(einsum.out.indices);
    if (state.declared == nullptr) return absl::OkStatus();
    for (size_t i = 0; i < einsum.out.indices.size(); ++i) {
      const Index& index = einsum.out.indices[i];
      const std::string& rank = index.terms.empty() ? carried_rank : index.terms[0].rank;
      if (state.declared->ranks[i] == rank) continue;
      return Wrong("the result has rank ", Quoted(rank), " where its declaration has ",
                   Quoted(state.declared->ranks[i]));
    }
    return absl::OkStatus();
  }

  // Checks everything except the indices of the result. `iterated` is the rank of the iteration, in
  // a body.
  absl::Status CheckEinsum(const Einsum& einsum, std::string_view iterated = "") {
    if (einsum.out.is_constant()) return Wrong("the result has no name");
    if (std::ssize(einsum.out.indices) > kMaxRanksOfTensor) {
      return Wrong("the result has more than ", kMaxRanksOfTensor, " ranks");
    }
    if (einsum.in.empty() || einsum.in.size() > 2) {
      return Wrong("it has ", einsum.in.size(), " operands, not one or two");
    }
    if (std::ssize(einsum.where) > kMaxConditions) {
      return Wrong("it has more than ", kMaxConditions, " conditions");
    }
    SLUICE_RETURN_IF_ERROR(CheckArity(einsum.out));
    absl::flat_hash_set<std::string> space;
    for (const Index& index : einsum.out.indices) {
      SLUICE_RETURN_IF_ERROR(CheckIndex(index, nullptr));
      for (const Index::Term& term : index.terms) space.insert(term.rank);
    }
    SLUICE_RETURN_IF_ERROR(CheckReductions(einsum, &space));
    for (const Access& access : einsum.in) {
      SLUICE_RETURN_IF_ERROR(CheckOperand(access, space, iterated));
    }
    for (const Condition& condition : einsum.where) {
      SLUICE_RETURN_IF_ERROR(CheckIndex(condition.left, &space));
      SLUICE_RETURN_IF_ERROR(CheckIndex(condition.right, &space));
    }
    return CheckMap(einsum);
  }

  absl::Status CheckMap(const Einsum& einsum) const {
    if (einsum.in.size() < 2) return absl::OkStatus();
    const bool is_partial = einsum.map == Op::kSubtract || einsum.map == Op::kDivide;
    if ((is_partial && einsum.map_merge == Merge::kOr) ||
        (einsum.map == Op::kDivide && einsum.map_merge == Merge::kAll)) {
      return Wrong("map ", NameOf(einsum.map), "(", NameOf(einsum.map_merge),
                   ") has no meaning where an operand has no value");
    }
    return absl::OkStatus();
  }

  absl::Status CheckReductions(const Einsum& einsum,
                               absl::flat_hash_set<std::string>* space) const {
    for (const Reduction& each : einsum.reduce) {
      if (!ranks_.contains(each.rank)) {
        return Wrong("it reduces rank ", Quoted(each.rank), ", which is not declared");
      }
      if (!space->insert(each.rank).second) {
        return Wrong("it reduces rank ", Quoted(each.rank),
                     ", which its result has or which is already reduced");
      }
      if (each.op == Op::kSubtract || each.op == Op::kDivide) {
        return Wrong("it reduces by ", NameOf(each.op), ", whose result depends on the order");
      }
      if (each.merge != Merge::kOr && each.merge != Merge::kAll) {
        return Wrong("the merge of a reduction must be 'or' or 'all', not '", NameOf(each.merge),
                     "'");
      }
      if (each.op != einsum.reduce[0].op || each.merge != einsum.reduce[0].merge) {
        return Wrong("its reductions differ in their operation");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckArity(const Access& access) const {
    const auto found = tensors_.find(access.tensor);
    if (found == tensors_.end()) return absl::OkStatus();
    const TensorState& state = found->second;
    if (state.declared == nullptr && !state.is_written && !state.readable && !state.is_carried) {
      return absl::OkStatus();
    }
    if (state.arity == std::ssize(access.indices)) return absl::OkStatus();
    return Wrong(Quoted(access.tensor), " has ", state.arity, " ranks, not ",
                 access.indices.size());
  }

  absl::Status CheckOperand(const Access& access, const absl::flat_hash_set<std::string>& space,
                            std::string_view iterated) const {
    if (access.is_constant()) {
      if (!access.indices.empty()) return Wrong("a constant has an index");
      if (std::isnan(access.constant)) return Wrong("a constant is not a number");
      return absl::OkStatus();
    }
    const auto found = tensors_.find(access.tensor);
    if (found == tensors_.end()) {
      return Wrong("it reads ", Quoted(access.tensor),
                   ", which is neither declared nor an earlier result");
    }
    SLUICE_RETURN_IF_ERROR(CheckArity(access));
    for (const Index& index : access.indices) SLUICE_RETURN_IF_ERROR(CheckIndex(index, &space));
    return CheckReadable(access, found->second, iterated);
  }

  absl::Status CheckReadable(const Access& access, const TensorState& state,
                             std::string_view iterated) const {
    if (state.readable) return absl::OkStatus();
    if (iterated.empty() || state.position < 0) {
      return Wrong("it reads ", Quoted(access.tensor), " before it is written");
    }
    const Index& index = access.indices[state.position];
    if (IsRank(index, iterated) && (state.is_carried || state.is_written_in_body)) {
      return absl::OkStatus();
    }
    if (IsNext(index, iterated) && state.is_carried && state.is_written_in_body) {
      return absl::OkStatus();
    }
    return Wrong("it reads ", Quoted(access.tensor), " at an index of ", iterated,
                 " that is not written yet");
  }

  // Checks that the ranks of an index are in `space`, unless that is null.
  absl::Status CheckIndex(const Index& index, const absl::flat_hash_set<std::string>* space) const {
    if (std::ssize(index.terms) > kMaxTermsOfIndex) {
      return Wrong("an index has more than ", kMaxTermsOfIndex, " terms");
    }
    for (size_t i = 0; i < index.terms.size(); ++i) {
      const Index::Term& term = index.terms[i];
      if (!ranks_.contains(term.rank)) {
        return Wrong("rank ", Quoted(term.rank), " is not declared");
      }
      if (space != nullptr && !space->contains(term.rank)) {
        return Wrong("rank ", Quoted(term.rank), " is neither in the result nor reduced");
      }
      if (term.factor == 0 || !IsNumber(term.factor)) {
        return Wrong("rank ", Quoted(term.rank), " has a factor of ", term.factor);
      }
      for (size_t j = 0; j < i; ++j) {
        if (index.terms[j].rank != term.rank) continue;
        return Wrong("an index has rank ", Quoted(term.rank), " twice");
      }
    }
    if (!IsNumber(index.offset)) return Wrong("an index has an offset of ", index.offset);
    if (!index.end_of.empty() && !ranks_.contains(index.end_of)) {
      return Wrong("rank ", Quoted(index.end_of), " is not declared");
    }
    return absl::OkStatus();
  }

  const Cascade& cascade_;
  absl::flat_hash_set<std::string> ranks_;
  absl::flat_hash_map<std::string, TensorState> tensors_;
  std::string statement_;  // the one being checked
};

}  // namespace

absl::Status Check(const Cascade& cascade) { return Checker(cascade).Run(); }

}  // namespace sluice::einsum
