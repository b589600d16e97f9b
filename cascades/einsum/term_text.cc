// Terms as text: keys of hash-consing, an order of variants that does not depend on the search, and
// readable text.
#include <charconv>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/enum_names.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {
namespace {

// Returns the shortest text that reads back as the same number.
std::string NumberText(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  SLUICE_CHECK(error == std::errc());
  return {buffer, end};
}

std::string TermIndexText(const Index& index) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "+") + part; };
  for (const Index::Term& term : index.terms) {
    add(term.factor == 1 ? term.rank : std::to_string(term.factor) + "*" + term.rank);
  }
  if (!index.end_of.empty()) add("|" + index.end_of + "|");
  if (index.offset != 0 || text.empty()) add(std::to_string(index.offset));
  return text;
}

std::string TermAccessText(const Access& access) {
  std::string text = access.tensor + "[";
  for (const Index& index : access.indices) {
    text += (text.back() == '[' ? "" : ",") + TermIndexText(index);
  }
  return text + "]";
}

std::string Head(const Term& term) {
  switch (term.kind) {
    case TermKind::kUnary:
      return std::string(NameOf(term.function));
    case TermKind::kMap:
      return std::string(NameOf(term.op));
    case TermKind::kReduce:
      return "reduce " + std::string(NameOf(term.op)) + " " + term.rank;
    case TermKind::kSplit:
      return "split " + term.rank + "=" + std::to_string(term.chunk) + "*" + term.outer + "+" +
             term.inner;
    case TermKind::kFold:
      return "fold " + term.rank;
    case TermKind::kMerge:
      return "merge " + term.rank;
    case TermKind::kInput:
    case TermKind::kConstant:
      break;
  }
  SLUICE_CHECK(false);
}

std::string Text(const Term& term, const std::vector<std::string>& args) {
  if (term.kind == TermKind::kInput) return TermAccessText(term.access);
  if (term.kind == TermKind::kConstant) return NumberText(term.value);
  std::string text = "(" + Head(term);
  for (const std::string& arg : args) text += " " + arg;
  for (const Condition& condition : term.where) {
    text += " where " + TermIndexText(condition.left);
    text += NameOf(condition.comparison);
    text += TermIndexText(condition.right);
  }
  return text + ")";
}

}  // namespace

std::string NodeText(const Term& term) {
  std::vector<std::string> args;
  args.reserve(term.args.size());
  for (const TermId arg : term.args) args.push_back("#" + std::to_string(arg));
  return Text(term, args);
}

std::string TermText(const TermPool& pool, TermId id) {
  std::unordered_map<TermId, std::string> known;
  const auto text = [&](const auto& self, TermId term_id) -> std::string {
    if (const auto found = known.find(term_id); found != known.end()) return found->second;
    const Term& term = pool.TermOf(term_id);
    std::vector<std::string> args;
    args.reserve(term.args.size());
    for (const TermId arg : term.args) args.push_back(self(self, arg));
    std::string whole = Text(term, args);
    if (std::ssize(whole) > kMaxTermText) whole = "#" + std::to_string(term_id);
    return known[term_id] = std::move(whole);
  };
  return text(text, id);
}

}  // namespace sluice::einsum
