#include "cascades/einsum/einsum_string.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice::einsum {
namespace {

// The letters of the operands and of the result.
struct Letters {
  std::vector<std::string> operands = {""};
  std::string result;
  bool has_result = false;
};

absl::Status WrongAt(size_t at, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("column ", at + 1, ": ", std::string(what)));
}

absl::StatusOr<Letters> ReadLetters(std::string_view text) {
  Letters letters;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == ' ') continue;
    if (absl::ascii_isalpha(c)) {
      std::string& side = letters.has_result ? letters.result : letters.operands.back();
      if (std::ssize(side) == kMaxRanksOfTensor) {
        return WrongAt(at, absl::StrCat("a tensor has at most ", kMaxRanksOfTensor, " ranks"));
      }
      if (letters.has_result && side.find(c) != side.npos) {
        return WrongAt(at, absl::StrCat("the result has '", std::string(1, c), "' twice"));
      }
      side += c;
    } else if (c == ',' && !letters.has_result) {
      if (letters.operands.size() == 2) {
        return WrongAt(at, "two operands at most; write more as a cascade of einsums");
      }
      letters.operands.emplace_back();
    } else if (text.substr(at).starts_with("->") && !letters.has_result) {
      letters.has_result = true;
      ++at;
    } else if (text.substr(at).starts_with("...")) {
      return WrongAt(at, "'...' is not supported; every rank needs a letter");
    } else {
      return WrongAt(at, absl::StrCat("expected a letter, ',' or '->', found '",
                                      absl::CHexEscape(std::string(1, c)), "'"));
    }
  }
  return letters;
}

Access AccessOfLetters(const char* tensor, const std::string& letters) {
  Access access{.tensor = tensor};
  for (const char c : letters) access.indices.push_back({.terms = {{std::string(1, c)}}});
  return access;
}

}  // namespace

absl::StatusOr<Cascade> ParseEinsumString(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(Letters letters, ReadLetters(text));
  std::string all;
  for (const std::string& operand : letters.operands) all += operand;
  if (!letters.has_result) {
    for (const char c : all) {
      if (std::ranges::count(all, c) == 1) letters.result += c;
    }
    std::ranges::sort(letters.result);
  }
  Cascade cascade;
  Einsum einsum{.out = AccessOfLetters("Z", letters.result), .in = {}};
  const auto declare = [&](const char* name, const std::string& ranks) {
    Tensor& tensor = cascade.tensors.emplace_back();
    tensor.name = name;
    for (const char c : ranks) tensor.ranks.emplace_back(1, c);
  };
  const char* const names[] = {"A", "B"};
  for (size_t i = 0; i < letters.operands.size(); ++i) {
    declare(names[i], letters.operands[i]);
    einsum.in.push_back(AccessOfLetters(names[i], letters.operands[i]));
  }
  declare("Z", letters.result);
  std::string seen;
  for (const char c : all) {
    if (seen.find(c) != seen.npos) continue;
    seen += c;
    const std::string rank(1, c);
    cascade.ranks.push_back({rank, {rank}});
    if (letters.result.find(c) == letters.result.npos) einsum.reduce.push_back({rank, Op::kAdd});
  }
  for (const char c : letters.result) {
    if (seen.find(c) != seen.npos) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the result has '", std::string(1, c), "', which no operand has"));
  }
  cascade.statements.emplace_back(std::move(einsum));
  SLUICE_RETURN_IF_ERROR(Check(cascade));
  return cascade;
}

absl::StatusOr<Sizes> ParseSizes(std::string_view text) {
  Sizes sizes;
  const absl::string_view list(text.data(), text.size());
  for (const absl::string_view entry : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(halves.first));
    const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
      return absl::ascii_isalnum(c) || c == '_';
    });
    int64_t size = 0;
    if (!is_name || !absl::SimpleAtoi(halves.second, &size) || size < 1 || size > kMaxNumber) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CHexEscape(entry.substr(0, kMaxNameLength)),
                       "' is not a name, '=' and a size from 1 to ", kMaxNumber));
    }
    if (!sizes.emplace(name, size).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name.substr(0, kMaxNameLength), "' has two sizes"));
    }
  }
  return sizes;
}

}  // namespace sluice::einsum
