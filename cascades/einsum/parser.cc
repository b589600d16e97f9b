#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cascades/einsum/lexer.h"
#include "cascades/einsum/text.h"

namespace sluice::einsum {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {
    token_ = lexer_.Next();
    next_ = lexer_.Next();
  }

  absl::StatusOr<Cascade> Run() {
    Cascade cascade;
    if (Take("cascade")) {
      SLUICE_ASSIGN_OR_RETURN(cascade.name, Name("the cascade's name"));
    }
    while (token_.kind != Token::Kind::kEnd) {
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
        SLUICE_ASSIGN_OR_RETURN(Einsum einsum, ReadEinsum("rank, tensor, iterate or a result"));
        cascade.statements.push_back(std::move(einsum));
      }
    }
    return cascade;
  }

 private:
  bool Is(std::string_view text) const {
    return token_.kind != Token::Kind::kEnd && token_.text == text;
  }

  void Skip() {
    token_ = next_;
    next_ = lexer_.Next();
  }

  bool Take(std::string_view text) {
    if (!Is(text)) return false;
    Skip();
    return true;
  }

  absl::Status Expected(std::string_view what) const {
    const std::string found =
        token_.kind == Token::Kind::kEnd
            ? "the end"
            : absl::StrCat("'", absl::CHexEscape(std::string(token_.text.substr(0, 32))), "'");
    return absl::InvalidArgumentError(absl::StrCat("line ", token_.line, ", column ", token_.column,
                                                   ": expected ", std::string(what), ", found ",
                                                   found));
  }

  absl::Status Expect(std::string_view text) {
    if (Take(text)) return absl::OkStatus();
    return Expected(absl::StrCat("'", std::string(text), "'"));
  }

  absl::StatusOr<std::string> Name(std::string_view what) {
    if (token_.kind != Token::Kind::kName) return Expected(what);
    std::string name(token_.text);
    Skip();
    return name;
  }

  // Reads a name of an enumerator, or its symbol.
  template <typename E>
  absl::StatusOr<E> Word(std::string_view what) {
    const std::optional<E> value = EnumOf<E>(token_.text);
    if (!value || token_.kind == Token::Kind::kEnd) return Expected(what);
    Skip();
    return *value;
  }

  absl::StatusOr<int64_t> Integer() {
    int64_t value = 0;
    const char* const end = token_.text.data() + token_.text.size();
    const std::from_chars_result read = std::from_chars(token_.text.data(), end, value);
    if (token_.kind != Token::Kind::kNumber || read.ec != std::errc() || read.ptr != end ||
        value > kMaxNumber) {
      return Expected("an integer up to 2^31");
    }
    Skip();
    return value;
  }

  absl::StatusOr<double> Number(std::string_view what) {
    double value = 0;
    const char* const end = token_.text.data() + token_.text.size();
    const std::from_chars_result read = std::from_chars(token_.text.data(), end, value);
    if (token_.kind != Token::Kind::kNumber || read.ec != std::errc() || read.ptr != end) {
      return Expected(what);
    }
    Skip();
    return value;
  }

  absl::StatusOr<Rank> ReadRank() {
    Rank rank;
    SLUICE_ASSIGN_OR_RETURN(rank.name, Name("the rank's name"));
    SLUICE_RETURN_IF_ERROR(Expect("="));
    if (token_.kind == Token::Kind::kNumber) {
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
    if (token_.kind == Token::Kind::kNumber) {
      SLUICE_ASSIGN_OR_RETURN(tensor.bytes_per_value, Number("a number of bytes"));
      SLUICE_RETURN_IF_ERROR(Expect("bytes"));
    }
    return tensor;
  }

  // Reads '[' or '_{' and returns the closing text, or nothing.
  std::string_view TakeOpening() {
    if (Take("[")) return "]";
    if (!Is("_") || next_.text != "{") return "";
    Skip();
    Skip();
    return "}";
  }

  absl::StatusOr<Iteration> ReadIteration() {
    Iteration iteration;
    SLUICE_ASSIGN_OR_RETURN(iteration.rank, Name("the rank of the iteration"));
    SLUICE_RETURN_IF_ERROR(Expect("{"));
    while (Take("init")) {
      SLUICE_ASSIGN_OR_RETURN(Einsum einsum, ReadEinsum("a result"));
      iteration.init.push_back(std::move(einsum));
    }
    while (!Take("}")) {
      SLUICE_ASSIGN_OR_RETURN(Einsum einsum, ReadEinsum("a result or '}'"));
      iteration.body.push_back(std::move(einsum));
    }
    return iteration;
  }

  absl::StatusOr<Einsum> ReadEinsum(std::string_view expected) {
    Einsum einsum;
    if (token_.kind != Token::Kind::kName) return Expected(expected);
    SLUICE_ASSIGN_OR_RETURN(einsum.out, ReadAccess());
    SLUICE_RETURN_IF_ERROR(Expect("="));
    do {
      SLUICE_ASSIGN_OR_RETURN(Access access, ReadAccess());
      einsum.in.push_back(std::move(access));
    } while (einsum.in.size() < 2 && Take("."));
    if (Take("::")) SLUICE_RETURN_IF_ERROR(ReadActions(&einsum));
    return einsum;
  }

  absl::Status ReadActions(Einsum* einsum) {
    const bool maps = einsum->in.size() == 2;
    if (!(maps && Is("map")) && !Is("unary") && !Is("reduce") && !Is("where")) {
      return Expected(maps ? "map, unary, reduce or where" : "unary, reduce or where");
    }
    if (maps && Take("map")) SLUICE_RETURN_IF_ERROR(ReadMap(einsum));
    if (Take("unary")) {
      constexpr const char* kExpected = "a function such as exp";
      if (Is(NameOf(Function::kNone))) return Expected(kExpected);
      SLUICE_ASSIGN_OR_RETURN(einsum->unary, Word<Function>(kExpected));
    }
    while (Take("reduce")) {
      Reduction reduction;
      SLUICE_ASSIGN_OR_RETURN(reduction.rank, ReadSubscript());
      SLUICE_RETURN_IF_ERROR(ReadOp(&reduction.op, &reduction.merge));
      einsum->reduce.push_back(std::move(reduction));
    }
    if (!Take("where")) return absl::OkStatus();
    do {
      Condition condition;
      SLUICE_ASSIGN_OR_RETURN(condition.left, ReadIndex());
      SLUICE_ASSIGN_OR_RETURN(condition.comparison, Word<Comparison>("'<', '<=' or '=='"));
      SLUICE_ASSIGN_OR_RETURN(condition.right, ReadIndex());
      einsum->where.push_back(std::move(condition));
    } while (Take(","));
    return absl::OkStatus();
  }

  // Reads the operation, and before it an optional rank, which is ignored.
  absl::Status ReadMap(Einsum* einsum) {
    if (Is("_") || (token_.kind == Token::Kind::kName && next_.text != "(")) {
      SLUICE_RETURN_IF_ERROR(ReadSubscript().status());
    }
    return ReadOp(&einsum->map, &einsum->map_merge);
  }

  // Reads `k`, `_k` or `_{k}`.
  absl::StatusOr<std::string> ReadSubscript() {
    const bool braces = Take("_") && Take("{");
    SLUICE_ASSIGN_OR_RETURN(std::string rank, Name("a rank"));
    if (braces) SLUICE_RETURN_IF_ERROR(Expect("}"));
    return rank;
  }

  absl::Status ReadOp(Op* op, Merge* merge) {
    SLUICE_ASSIGN_OR_RETURN(*op, Word<Op>("an operation (+, -, x, /, max or min)"));
    SLUICE_RETURN_IF_ERROR(Expect("("));
    if (Take("1")) {
      *merge = Merge::kAll;
    } else {
      SLUICE_ASSIGN_OR_RETURN(*merge, Word<Merge>("a merge (and, or, left or all)"));
    }
    return Expect(")");
  }

  absl::StatusOr<Access> ReadAccess() {
    if (token_.kind != Token::Kind::kName || Is("inf")) return ReadConstant();
    Access access{.tensor = std::string(token_.text)};
    Skip();
    const std::string_view close = TakeOpening();
    if (close.empty()) return access;
    do {
      SLUICE_ASSIGN_OR_RETURN(Index index, ReadIndex());
      access.indices.push_back(std::move(index));
    } while (Take(","));
    SLUICE_RETURN_IF_ERROR(Expect(close));
    return access;
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
    Index::Term term;
    if (token_.kind == Token::Kind::kNumber) {
      SLUICE_ASSIGN_OR_RETURN(const int64_t number, Integer());
      if (!Take("*")) {
        index->offset += sign * number;
        return absl::OkStatus();
      }
      term.factor = sign * number;
      SLUICE_ASSIGN_OR_RETURN(term.rank, Name("a rank"));
    } else {
      term.factor = sign;
      if (Is("end")) return Expected("a rank or a number, as one `end` may be added to an index");
      SLUICE_ASSIGN_OR_RETURN(term.rank, Name("a rank or a number"));
      if (Take("*")) {
        SLUICE_ASSIGN_OR_RETURN(const int64_t number, Integer());
        term.factor *= number;
      }
    }
    index->terms.push_back(std::move(term));
    return absl::OkStatus();
  }

  Lexer lexer_;
  Token token_;
  Token next_;
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
