#include "cascades/einsum/text.h"

#include <charconv>
#include <cmath>
#include <vector>

namespace sluice::einsum {
namespace {

std::string Number(double value, Notation notation) {
  if (std::isinf(value)) {
    const char* const infinity = notation == Notation::kUnicode ? "∞" : "inf";
    return std::string(value < 0 ? "-" : "") + infinity;
  }
  char digits[32];
  const std::to_chars_result end = std::to_chars(std::begin(digits), std::end(digits), value);
  return {digits, end.ptr};
}

std::string Text(const Index& index) {
  std::string text;
  const auto add = [&text](bool negative, const std::string& what) {
    if (negative || !text.empty()) text += negative ? '-' : '+';
    text += what;
  };
  for (const Index::Term& term : index.terms) {
    const int64_t factor = std::abs(term.factor);
    add(term.factor < 0, factor == 1 ? term.rank : term.rank + "*" + std::to_string(factor));
  }
  if (!index.end_of.empty()) add(false, "end " + index.end_of);
  if (index.offset != 0 || text.empty()) {
    add(index.offset < 0, std::to_string(std::abs(index.offset)));
  }
  return text;
}

template <typename Each>
std::string Join(const std::vector<Each>& items, const auto& text_of) {
  std::string text;
  for (const Each& each : items) text += (text.empty() ? "" : ", ") + text_of(each);
  return text;
}

std::string Text(const Access& access, Notation notation) {
  if (access.is_constant()) return Number(access.constant, notation);
  // Without brackets, a_b would be read as the tensor a at b.
  if (access.indices.empty() && access.tensor.find('_') == std::string::npos) return access.tensor;
  const std::string indices = Join(access.indices, [](const Index& index) { return Text(index); });
  if (notation == Notation::kUnicode) return access.tensor + "_{" + indices + "}";
  return access.tensor + "[" + indices + "]";
}

std::string_view SymbolOf(Op op, Notation notation) {
  if (notation == Notation::kAscii) return NameOf(op);
  switch (op) {
    case Op::kSubtract:
      return "−";
    case Op::kMultiply:
      return "×";
    case Op::kDivide:
      return "÷";
    default:
      return NameOf(op);
  }
}

std::string_view SymbolOf(Merge merge, Notation notation) {
  if (notation == Notation::kAscii) return NameOf(merge);
  switch (merge) {
    case Merge::kAnd:
      return "∩";
    case Merge::kOr:
      return "∪";
    case Merge::kLeft:
      return "←";
    case Merge::kAll:
      break;
  }
  return "1";
}

std::string Text(Op op, Merge merge, Notation notation) {
  return std::string(SymbolOf(op, notation)) + "(" + std::string(SymbolOf(merge, notation)) + ")";
}

std::string Text(const Condition& condition, Notation notation) {
  std::string_view comparison = NameOf(condition.comparison);
  if (condition.comparison == Comparison::kLessEqual && notation == Notation::kUnicode) {
    comparison = "≤";
  }
  return Text(condition.left) + " " + std::string(comparison) + " " + Text(condition.right);
}

std::string Text(const Rank& rank) {
  std::string text = "rank " + rank.name + " = ";
  if (rank.size.symbol.empty()) return text + std::to_string(rank.size.divisor);
  text += rank.size.symbol;
  if (rank.size.divisor != 1) text += " / " + std::to_string(rank.size.divisor);
  return text;
}

std::string Text(const Tensor& tensor) {
  std::string text = "tensor " + tensor.name;
  if (!tensor.ranks.empty()) {
    text += "[" + Join(tensor.ranks, [](const std::string& rank) { return rank; }) + "]";
  }
  text += " " + std::string(NameOf(tensor.home));
  if (tensor.bytes_per_value != 4) {
    text += " " + Number(tensor.bytes_per_value, Notation::kAscii) + " bytes";
  }
  return text;
}

}  // namespace

std::string Print(const Einsum& einsum, Notation notation) {
  const bool unicode = notation == Notation::kUnicode;
  std::string text = Text(einsum.out, notation) + " =";
  for (size_t i = 0; i < einsum.in.size(); ++i) {
    if (i > 0) text += unicode ? " ·" : " .";
    text += " " + Text(einsum.in[i], notation);
  }
  std::string actions;
  if (einsum.in.size() == 2) {
    actions = std::string(unicode ? " ⋀ " : " map ") + Text(einsum.map, einsum.map_merge, notation);
  }
  if (einsum.unary != Function::kNone) actions += " unary " + std::string(NameOf(einsum.unary));
  for (const Reduction& each : einsum.reduce) {
    actions +=
        (unicode ? " ⋁_" : " reduce ") + each.rank + " " + Text(each.op, each.merge, notation);
  }
  if (!einsum.where.empty()) {
    actions += " where " + Join(einsum.where, [&](const Condition& condition) {
                 return Text(condition, notation);
               });
  }
  return actions.empty() ? text : text + " ::" + actions;
}

std::string Print(const Cascade& cascade, Notation notation) {
  std::string text;
  if (!cascade.name.empty()) text += "cascade " + cascade.name + "\n";
  for (const Rank& rank : cascade.ranks) text += Text(rank) + "\n";
  for (const Tensor& tensor : cascade.tensors) text += Text(tensor) + "\n";
  for (const Statement& statement : cascade.statements) {
    if (const auto* einsum = std::get_if<Einsum>(&statement)) {
      text += Print(*einsum, notation) + "\n";
      continue;
    }
    const auto& iteration = std::get<Iteration>(statement);
    text += "iterate " + iteration.rank + " {\n";
    for (const Einsum& each : iteration.init) text += "  init " + Print(each, notation) + "\n";
    for (const Einsum& each : iteration.body) text += "  " + Print(each, notation) + "\n";
    text += "}\n";
  }
  return text;
}

}  // namespace sluice::einsum
