#include "cascades/cascade_builder.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_split.h"
#include "base/check.h"

namespace sluice {
namespace {

einsum::Index IndexOf(const std::string& text) {
  const size_t plus = text.find('+');
  einsum::Index index = {.terms = {{.rank = text.substr(0, plus)}}};
  if (plus != std::string::npos) index.offset = std::stoll(text.substr(plus + 1));
  return index;
}

einsum::Access AccessOf(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  SLUICE_CHECK(open != std::string::npos && close == text.size() - 1);
  einsum::Access access = {.tensor = text.substr(0, open)};
  const std::string indices = text.substr(open + 1, close - open - 1);
  for (const std::string& index : std::vector<std::string>(absl::StrSplit(indices, ','))) {
    access.indices.push_back(IndexOf(index));
  }
  return access;
}

}  // namespace

CascadeBuilder& CascadeBuilder::Rank(std::string name, einsum::Size size) {
  cascade_.ranks.push_back({std::move(name), std::move(size)});
  return *this;
}

CascadeBuilder& CascadeBuilder::Tensor(std::string name, std::vector<std::string> ranks,
                                       einsum::Home home, double bytes_per_value) {
  cascade_.tensors.push_back({std::move(name), std::move(ranks), home, bytes_per_value});
  return *this;
}

CascadeBuilder& CascadeBuilder::Input(std::string name, std::vector<std::string> ranks) {
  constexpr int32_t kFloatBytes = 4;
  return Tensor(std::move(name), std::move(ranks), einsum::Home::kArena, kFloatBytes);
}

CascadeBuilder& CascadeBuilder::Map(const std::string& out, const Operand& a, einsum::Op op,
                                    const Operand& b, einsum::Function function) {
  Add(out, {a, b}, op, function, {});
  return *this;
}

CascadeBuilder& CascadeBuilder::Apply(const std::string& out, einsum::Function function,
                                      const Operand& a) {
  Add(out, {a}, einsum::Op::kMultiply, function, {});
  return *this;
}

CascadeBuilder& CascadeBuilder::Copy(const std::string& out, const Operand& a) {
  return Apply(out, einsum::Function::kNone, a);
}

CascadeBuilder& CascadeBuilder::Reduce(const std::string& out, const std::string& rank,
                                       einsum::Op op, const Operand& a) {
  Add(out, {a}, einsum::Op::kMultiply, einsum::Function::kNone, {{.rank = rank, .op = op}});
  return *this;
}

CascadeBuilder& CascadeBuilder::Contract(const std::string& out, const std::string& rank,
                                         const Operand& a, const Operand& b) {
  Add(out, {a, b}, einsum::Op::kMultiply, einsum::Function::kNone,
      {{.rank = rank, .op = einsum::Op::kAdd}});
  return *this;
}

std::string CascadeBuilder::Chain(const Operand& a, einsum::Op op, const Operand& b,
                                  std::string out) {
  Map(out, a, op, b);
  return out;
}

void CascadeBuilder::Add(const std::string& out, std::vector<Operand> in, einsum::Op op,
                         einsum::Function function, std::vector<einsum::Reduction> reduce) {
  einsum::Einsum einsum = {
      .out = AccessOf(out), .in = {}, .map = op, .unary = function, .reduce = std::move(reduce)};
  for (const Operand& operand : in) {
    einsum.in.push_back(operand.text.empty()
                            ? einsum::Access{.tensor = "", .constant = operand.constant}
                            : AccessOf(operand.text));
  }
  cascade_.statements.emplace_back(std::move(einsum));
}

einsum::Cascade CascadeBuilder::Build(const std::string& result) && {
  for (const einsum::Statement& statement : cascade_.statements) {
    const auto& out = std::get<einsum::Einsum>(statement).out;
    const bool declared = std::ranges::any_of(
        cascade_.tensors, [&](const einsum::Tensor& tensor) { return tensor.name == out.tensor; });
    if (declared) continue;
    std::vector<std::string> ranks;
    ranks.reserve(out.indices.size());
    for (const einsum::Index& index : out.indices) ranks.push_back(index.terms[0].rank);
    Tensor(out.tensor, std::move(ranks),
           out.tensor == result ? einsum::Home::kArena : einsum::Home::kTile, 4);
  }
  return std::move(cascade_);
}

}  // namespace sluice
