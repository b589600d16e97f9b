#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cascades/einsum/infer_declarations.h"
#include "cascades/einsum/lexer.h"
#include "cascades/einsum/lower_fuse.h"
#include "cascades/einsum/text.h"
#include "cascades/einsum/token_reader.h"

namespace sluice::einsum {
namespace {

// The names that a text declares, and all its names.
struct Declarations {
  std::set<std::string, std::less<>> ranks, tensors, names;

  bool any() const { return !ranks.empty() || !tensors.empty(); }
};

Declarations FindDeclarations(std::string_view text) {
  Declarations found;
  Lexer lexer(text);
  std::set<std::string, std::less<>>* into = &found.names;
  for (Token token = lexer.Next(); token.kind != Token::Kind::kEnd; token = lexer.Next()) {
    if (token.kind == Token::Kind::kName) {
      into->emplace(token.text);
      found.names.emplace(token.text);
    }
    into = &found.names;
    if (token.text == "rank") into = &found.ranks;
    if (token.text == "tensor") into = &found.tensors;
  }
  return found;
}

class Parser : private TokenReader {
 public:
  explicit Parser(std::string_view text) : TokenReader(text), declared_(FindDeclarations(text)) {}

  absl::StatusOr<Cascade> Run() {
    Cascade cascade;
    if (Take("cascade")) {
      SLUICE_ASSIGN_OR_RETURN(cascade.name, Name("the cascade's name"));
    }
    while (token().kind != Token::Kind::kEnd) {
      if (Take("rank")) {
        SLUICE_ASSIGN_OR_RETURN(Rank rank, ReadRank());
        cascade.ranks.push_back(std::move(rank));
      } else if (Take("tensor")) {
        SLUICE_ASSIGN_OR_RETURN(Tensor tensor, ReadTensor());
        cascade.tensors.push_back(std::move(tensor));
      } else if (Take("iterate")) {
        SLUICE_ASSIGN_OR_RETURN(Iteration iteration, ReadIteration());
        cascade.statements.push_back(std::move(iteration));
      } else {
        SLUICE_ASSIGN_OR_RETURN(
            Einsum einsum, ReadEinsum("rank, tensor, iterate or a result", /*iterates=*/false));
        cascade.statements.push_back(std::move(einsum));
      }
    }
    if (!declared_.any()) SLUICE_RETURN_IF_ERROR(InferDeclarations(&cascade));
    return cascade;
  }

 private:
  // A condition in a subscript.
  struct Filter {
    Condition condition;
    int operand;  // its index, or -1 for the result
    Token at;
  };

  absl::StatusOr<Rank> ReadRank() {
    Rank rank;
    SLUICE_ASSIGN_OR_RETURN(rank.name, Name("the rank's name"));
    SLUICE_RETURN_IF_ERROR(Expect("="));
    if (token().kind == Token::Kind::kNumber) {
      SLUICE_ASSIGN_OR_RETURN(rank.size.divisor, Integer());
      return rank;
    }
    SLUICE_ASSIGN_OR_RETURN(rank.size.symbol, Name("the rank's size, a number or a word"));
    if (Take("/")) {
      SLUICE_ASSIGN_OR_RETURN(rank.size.divisor, Integer());
    }
    return rank;
  }

  absl::StatusOr<Tensor> ReadTensor() {
    Tensor tensor;
    SLUICE_ASSIGN_OR_RETURN(tensor.name, Name("the tensor's name"));
    if (const std::string_view close = TakeOpening(); !close.empty()) {
      do {
        SLUICE_ASSIGN_OR_RETURN(std::string rank, Name("a rank"));
        tensor.ranks.push_back(std::move(rank));
      } while (Take(","));
      SLUICE_RETURN_IF_ERROR(Expect(close));
    }
    SLUICE_ASSIGN_OR_RETURN(tensor.home, Word<Home>("weight, kv, arena or tile"));
    if (token().kind == Token::Kind::kNumber) {
      SLUICE_ASSIGN_OR_RETURN(tensor.bytes_per_value, Number("a number of bytes"));
      SLUICE_RETURN_IF_ERROR(Expect("bytes"));
    }
    return tensor;
  }

  // Reads '[' or '_{' and returns the closing text, or nothing.
  std::string_view TakeOpening() {
    if (Take("[")) return "]";
    if (!Is("_") || next().text != "{") return "";
    Skip();
    Skip();
    return "}";
  }

  absl::StatusOr<Iteration> ReadIteration() {
    Iteration iteration;
    SLUICE_ASSIGN_OR_RETURN(iteration.rank, Name("the rank of the iteration"));
    SLUICE_RETURN_IF_ERROR(Expect("{"));
    while (Take("init")) {
      SLUICE_ASSIGN_OR_RETURN(Einsum einsum, ReadEinsum("a result", /*iterates=*/true));
      iteration.init.push_back(std::move(einsum));
    }
    while (!Take("}")) {
      SLUICE_ASSIGN_OR_RETURN(Einsum einsum, ReadEinsum("a result or '}'", /*iterates=*/true));
      iteration.body.push_back(std::move(einsum));
    }
    return iteration;
  }

  absl::StatusOr<Einsum> ReadEinsum(std::string_view expected, bool iterates) {
    if (token().kind != Token::Kind::kName) return Expected(expected);
    Einsum einsum;
    filters_.clear();
    subscripted_ = false;
    maps_ = false;
    const Token begin = token();
    SLUICE_ASSIGN_OR_RETURN(einsum.out, ReadAccess(/*operand=*/-1));
    for (const Index& index : einsum.out.indices) {
      if (!subscripted_ || iterates || SingleRank(index) != nullptr) continue;
      return ErrorAt(begin, absl::StrCat("an index of the result '", einsum.out.tensor,
                                         "' is not a single rank. Only an einsum within `iterate` "
                                         "may write at other places."));
    }
    SLUICE_RETURN_IF_ERROR(Expect("="));
    SLUICE_RETURN_IF_ERROR(ReadValue(&einsum));
    if (Is("::") || Is(":")) {
      Skip();
      SLUICE_RETURN_IF_ERROR(ReadActions(&einsum));
    }
    SLUICE_RETURN_IF_ERROR(AddFilters(&einsum));
    if (subscripted_) SLUICE_RETURN_IF_ERROR(AddSums(begin, &einsum));
    results_.insert(einsum.out.tensor);
    return einsum;
  }

  // Reads the operands: one, two with '.' or an operation between them, or a function of these.
  absl::Status ReadValue(Einsum* einsum) {
    if (Is("e") && next().text == "^") {
      Skip();
      Skip();
      const bool braces = Take("{");
      if (!braces) SLUICE_RETURN_IF_ERROR(Expect("("));
      einsum->unary = Function::kExp;
      SLUICE_RETURN_IF_ERROR(ReadOperands(einsum));
      return Expect(braces ? "}" : ")");
    }
    const std::optional<Function> function = EnumOf<Function>(token().text);
    if (!function || *function == Function::kNone || next().text != "(")
      return ReadOperands(einsum);
    einsum->unary = *function;
    Skip();
    Skip();
    SLUICE_RETURN_IF_ERROR(ReadOperands(einsum));
    return Expect(")");
  }

  absl::Status ReadOperands(Einsum* einsum) {
    if ((Is("max") || Is("min")) && next().text == "(") {
      SetMap(*EnumOf<Op>(token().text), einsum);
      Skip();
      Skip();
      SLUICE_RETURN_IF_ERROR(ReadOperand(einsum));
      SLUICE_RETURN_IF_ERROR(Expect(","));
      SLUICE_RETURN_IF_ERROR(ReadOperand(einsum));
      SLUICE_RETURN_IF_ERROR(Expect(")"));
    } else {
      SLUICE_RETURN_IF_ERROR(ReadOperand(einsum));
      if (Take(".")) {
        SLUICE_RETURN_IF_ERROR(ReadOperand(einsum));
      } else if (const std::optional<Op> op = Infix()) {
        Skip();
        SetMap(*op, einsum);
        SLUICE_RETURN_IF_ERROR(ReadOperand(einsum));
      }
    }
    if (!Is(".") && !Infix()) return absl::OkStatus();
    return Expected("'::' or the next einsum, because an einsum has at most two operands");
  }

  absl::Status ReadOperand(Einsum* einsum) {
    SLUICE_ASSIGN_OR_RETURN(Access access, ReadAccess(static_cast<int>(einsum->in.size())));
    einsum->in.push_back(std::move(access));
    return absl::OkStatus();
  }

  // Returns the operation between operands that the token is. A result named x is not one.
  std::optional<Op> Infix() const {
    if (Is("*")) return Op::kMultiply;
    const bool operand_follows = next().kind == Token::Kind::kName ||
                                 next().kind == Token::Kind::kNumber || next().text == "-";
    if (Is("x")) return operand_follows ? std::optional(Op::kMultiply) : std::nullopt;
    if (token().kind != Token::Kind::kSymbol) return std::nullopt;
    return EnumOf<Op>(token().text);
  }

  void SetMap(Op op, Einsum* einsum) {
    maps_ = true;
    einsum->map = op;
    einsum->map_merge = MergeOf(op);
  }

  absl::Status ReadActions(Einsum* einsum) {
    const bool maps = einsum->in.size() == 2 && !maps_;
    const bool applies = einsum->unary == Function::kNone;
    if (!(maps && Is("map")) && !(applies && Is("unary")) && !Is("reduce") && !Is("where")) {
      return Expected(
          absl::StrCat(maps ? "map, " : "", applies ? "unary, " : "", "reduce or where"));
    }
    if (maps && Take("map")) SLUICE_RETURN_IF_ERROR(ReadMap(einsum));
    if (einsum->unary == Function::kNone && Take("unary")) {
      constexpr const char* kExpected = "a function such as exp";
      if (Is(NameOf(Function::kNone))) return Expected(kExpected);
      SLUICE_ASSIGN_OR_RETURN(einsum->unary, Word<Function>(kExpected));
    }
    while (Take("reduce")) {
      SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, ReadSubscripts());
      Reduction reduction;
      SLUICE_RETURN_IF_ERROR(ReadOp(&reduction.op, &reduction.merge));
      for (const std::string& rank : ranks) {
        reduction.rank = rank;
        einsum->reduce.push_back(reduction);
      }
    }
    if (Is("map") || Is("unary")) return Expected("reduce, where or the next einsum");
    if (!Take("where")) return absl::OkStatus();
    do {
      SLUICE_ASSIGN_OR_RETURN(Condition condition, ReadCondition());
      einsum->where.push_back(std::move(condition));
    } while (Take(","));
    return absl::OkStatus();
  }

  absl::StatusOr<Condition> ReadCondition() {
    SLUICE_ASSIGN_OR_RETURN(Index left, ReadIndex());
    return ReadComparison(std::move(left));
  }

  // Reads the comparison and the right side of a condition.
  absl::StatusOr<Condition> ReadComparison(Index left) {
    Condition condition{.left = std::move(left), .comparison = Comparison::kLess, .right = {}};
    const bool swapped = Is(">") || Is(">=");
    if (swapped) {
      if (Is(">=")) condition.comparison = Comparison::kLessEqual;
      Skip();
    } else {
      SLUICE_ASSIGN_OR_RETURN(condition.comparison,
                              Word<Comparison>("'<', '<=', '==', '>' or '>='"));
    }
    SLUICE_ASSIGN_OR_RETURN(condition.right, ReadIndex());
    if (swapped) std::swap(condition.left, condition.right);
    return condition;
  }

  // Reads the operation, and before it optional ranks, which are ignored. `sub-then-exp` also sets
  // the function.
  absl::Status ReadMap(Einsum* einsum) {
    const auto subtracts = [this] { return Is("sub") && next().text == "-"; };
    if (Is("_") || (token().kind == Token::Kind::kName && next().text != "(" && !subtracts())) {
      SLUICE_RETURN_IF_ERROR(ReadSubscripts().status());
    }
    if (subtracts()) {
      for (const char* const part : {"sub", "-", "then", "-", "exp"}) {
        SLUICE_RETURN_IF_ERROR(Expect(part));
      }
      einsum->map = Op::kSubtract;
      einsum->unary = Function::kExp;
      return ReadMerge(&einsum->map_merge);
    }
    return ReadOp(&einsum->map, &einsum->map_merge);
  }

  // Reads `k`, `_k`, `_{k}` or `_{k, l}`.
  absl::StatusOr<std::vector<std::string>> ReadSubscripts() {
    const bool braces = Take("_") && Take("{");
    std::vector<std::string> ranks;
    do {
      SLUICE_ASSIGN_OR_RETURN(std::string rank, Name("a rank"));
      ranks.push_back(std::move(rank));
    } while (braces && Take(","));
    if (braces) SLUICE_RETURN_IF_ERROR(Expect("}"));
    return ranks;
  }

  absl::Status ReadOp(Op* op, Merge* merge) {
    SLUICE_ASSIGN_OR_RETURN(*op, Word<Op>("an operation (+, -, x, /, max or min)"));
    return ReadMerge(merge);
  }

  absl::Status ReadMerge(Merge* merge) {
    SLUICE_RETURN_IF_ERROR(Expect("("));
    if (Take("1")) {
      *merge = Merge::kAll;
    } else {
      SLUICE_ASSIGN_OR_RETURN(*merge, Word<Merge>("a merge (and, or, left or all)"));
    }
    return Expect(")");
  }

  absl::StatusOr<Access> ReadAccess(int operand) {
    if (token().kind != Token::Kind::kName || Is("inf")) return ReadConstant();
    Access access{.tensor = std::string(token().text)};
    Skip();
    const std::string_view close = TakeOpening();
    if (close.empty()) {
      SplitSubscript(&access);
      return access;
    }
    subscripted_ |= close == "}";
    if (Take(close)) return access;  // a tensor without ranks
    do {
      SLUICE_ASSIGN_OR_RETURN(Index index, ReadIndex());
      if (Is(":")) SLUICE_RETURN_IF_ERROR(ReadFilter(operand, &index));
      access.indices.push_back(std::move(index));
    } while (Take(","));
    SLUICE_RETURN_IF_ERROR(Expect(close));
    return access;
  }

  // Reads A_k as the tensor A at k, unless there is a tensor with the whole name.
  void SplitSubscript(Access* access) {
    const size_t at = access->tensor.rfind('_');
    if (at == std::string::npos || at == 0 || declared_.tensors.contains(access->tensor) ||
        results_.contains(access->tensor)) {
      return;
    }
    std::string rank = access->tensor.substr(at + 1);
    if (rank.empty() || !absl::ascii_isalpha(rank[0])) return;
    if (declared_.any() && !declared_.ranks.contains(rank)) return;
    access->tensor.resize(at);
    access->indices.push_back({.terms = {{std::move(rank)}}});
    subscripted_ = true;
  }

  // Reads the condition of `k : k <= i`. `i : i = 2` is the index 2.
  absl::Status ReadFilter(int operand, Index* index) {
    const Token at = token();
    Skip();
    SLUICE_ASSIGN_OR_RETURN(Index left, ReadIndex());
    if (Is("=")) ReadAs(NameOf(Comparison::kEqual));
    const bool at_one_place =
        Is(NameOf(Comparison::kEqual)) && left == *index && SingleRank(left) != nullptr;
    SLUICE_ASSIGN_OR_RETURN(Condition condition, ReadComparison(std::move(left)));
    if (at_one_place && condition.right.terms.empty()) {
      *index = std::move(condition.right);
    } else {
      filters_.push_back({std::move(condition), operand, at});
    }
    return absl::OkStatus();
  }

  // Makes conditions of subscripts conditions of the einsum, which has no part where an operand of
  // a product has no value.
  absl::Status AddFilters(Einsum* einsum) {
    for (const Filter& filter : filters_) {
      const bool everywhere =
          filter.operand < 0 || einsum->in.size() == 1 || einsum->map_merge == Merge::kAnd ||
          (einsum->map_merge == Merge::kLeft && filter.operand == 0) ||
          std::ranges::any_of(filters_, [&](const Filter& other) {
            return other.operand == 1 - filter.operand && other.condition == filter.condition;
          });
      if (!everywhere) {
        return ErrorAt(filter.at, absl::StrCat("the condition after ':' holds for one operand of ",
                                               std::string(NameOf(einsum->map)), "(",
                                               std::string(NameOf(einsum->map_merge)),
                                               "). Give the other operand the same condition, or "
                                               "write it after `where`."));
      }
      if (std::ranges::find(einsum->where, filter.condition) == einsum->where.end()) {
        einsum->where.push_back(filter.condition);
      }
    }
    return absl::OkStatus();
  }

  // Sums over the ranks of the operands that are neither in the result nor reduced.
  static absl::Status AddSums(const Token& begin, Einsum* einsum) {
    std::vector<std::string> known = RanksOf(*einsum);
    const size_t explicit_reductions = einsum->reduce.size();
    for (const Access& access : einsum->in) {
      for (const Index& index : access.indices) {
        for (const Index::Term& term : index.terms) {
          if (std::ranges::find(known, term.rank) != known.end()) continue;
          if (explicit_reductions > 0 &&
              einsum->reduce[0] != Reduction{einsum->reduce[0].rank, Op::kAdd}) {
            return ErrorAt(begin,
                           absl::StrCat("'", einsum->out.tensor, "' has no rank '", term.rank,
                                        "' and does not reduce it. A rank is summed without a "
                                        "`reduce` only if all reductions are +(or)."));
          }
          known.push_back(term.rank);
          einsum->reduce.push_back({term.rank, Op::kAdd});
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Access> ReadConstant() {
    const double sign = Take("-") ? -1 : 1;
    Access access;
    if (Take("inf")) {
      access.constant = sign * std::numeric_limits<double>::infinity();
      return access;
    }
    SLUICE_ASSIGN_OR_RETURN(const double magnitude, Number("a tensor or a number"));
    access.constant = sign * magnitude;
    return access;
  }

  absl::StatusOr<Index> ReadIndex() {
    Index index;
    int64_t sign = Take("-") ? -1 : 1;
    while (true) {
      SLUICE_RETURN_IF_ERROR(ReadSummand(sign, &index));
      if (Take("+")) {
        sign = 1;
      } else if (Take("-")) {
        sign = -1;
      } else {
        return index;
      }
    }
  }

  absl::Status ReadSummand(int64_t sign, Index* index) {
    if (Is("end") && sign > 0 && index->end_of.empty()) {
      Skip();
      SLUICE_ASSIGN_OR_RETURN(index->end_of, Name("a rank"));
      return absl::OkStatus();
    }
    if (const std::string rank = RankOfShape();
        !rank.empty() && sign > 0 && index->end_of.empty()) {
      Skip();
      index->end_of = rank;
      return absl::OkStatus();
    }
    Index::Term term;
    if (token().kind == Token::Kind::kNumber) {
      SLUICE_ASSIGN_OR_RETURN(const int64_t number, Integer());
      if (!TakeTimes()) {
        index->offset += sign * number;
        return absl::OkStatus();
      }
      term.factor = sign * number;
      SLUICE_ASSIGN_OR_RETURN(term.rank, Name("a rank"));
    } else {
      term.factor = sign;
      if (Is("end")) return Expected("a rank or a number, as one `end` may be added to an index");
      SLUICE_ASSIGN_OR_RETURN(term.rank, Name("a rank or a number"));
      if (TakeTimes()) {
        SLUICE_ASSIGN_OR_RETURN(const int64_t number, Integer());
        term.factor *= number;
      }
    }
    index->terms.push_back(std::move(term));
    return absl::OkStatus();
  }

  // The next einsum may begin with a result named x.
  bool TakeTimes() {
    const bool is_factor = next().kind == Token::Kind::kName || next().kind == Token::Kind::kNumber;
    return Take("*") || (is_factor && Take("x"));
  }

  // Returns k if the token is K, the shape of a rank k, and no rank; or nothing.
  std::string RankOfShape() const {
    if (token().kind != Token::Kind::kName || declared_.ranks.contains(token().text)) return "";
    const std::string lower = absl::AsciiStrToLower(std::string(token().text));
    if (lower == token().text) return "";
    return (declared_.any() ? declared_.ranks : declared_.names).contains(lower) ? lower : "";
  }

  const Declarations declared_;
  std::set<std::string> results_;  // of the einsums so far
  // Of the einsum that is read:
  std::vector<Filter> filters_;
  bool subscripted_ = false;  // whether an access has subscripts
  bool maps_ = false;         // whether the operation is between the operands or before them
};

}  // namespace

absl::StatusOr<Cascade> Parse(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", text.size(), " bytes; the limit is ", kMaxTextBytes));
  }
  SLUICE_ASSIGN_OR_RETURN(Cascade cascade, Parser(text).Run());
  SLUICE_RETURN_IF_ERROR(Check(cascade));
  return cascade;
}

}  // namespace sluice::einsum
