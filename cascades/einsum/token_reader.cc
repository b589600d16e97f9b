#include "cascades/einsum/token_reader.h"

#include <charconv>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "cascades/einsum/cascade.h"

namespace sluice::einsum {
namespace {

std::string Shown(std::string_view token) {
  const absl::string_view text(token.data(), token.size());
  if (IsUtf8(text) && !IsControl(text)) return std::string(token);
  return absl::CHexEscape(text);
}

// Returns whether all of the token is a number of the type T, and stores it.
template <typename T>
bool IsNumber(const Token& token, T* value) {
  const char* const end = token.text.data() + token.text.size();
  const std::from_chars_result read = std::from_chars(token.text.data(), end, *value);
  return token.kind == Token::Kind::kNumber && read.ec == std::errc() && read.ptr == end;
}

}  // namespace

void TokenReader::Skip() {
  token_ = next_;
  next_ = lexer_.Next();
}

bool TokenReader::Take(std::string_view text) {
  if (!Is(text)) return false;
  Skip();
  return true;
}

absl::Status TokenReader::ErrorAt(const Token& token, std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", token.line, ", column ", token.column, ": ", std::string(message)));
}

absl::Status TokenReader::Expected(std::string_view what) const {
  const std::string found = token_.kind == Token::Kind::kEnd
                                ? "the end"
                                : absl::StrCat("'", Shown(token_.text.substr(0, 32)), "'");
  return ErrorAt(token_, absl::StrCat("expected ", std::string(what), ", found ", found));
}

absl::Status TokenReader::Expect(std::string_view text) {
  if (Take(text)) return absl::OkStatus();
  return Expected(absl::StrCat("'", std::string(text), "'"));
}

absl::StatusOr<std::string> TokenReader::Name(std::string_view what) {
  if (token_.kind != Token::Kind::kName) return Expected(what);
  std::string name(token_.text);
  Skip();
  return name;
}

absl::StatusOr<int64_t> TokenReader::Integer() {
  int64_t value = 0;
  if (!IsNumber(token_, &value) || value > kMaxNumber) return Expected("an integer up to 2^31");
  Skip();
  return value;
}

absl::StatusOr<double> TokenReader::Number(std::string_view what) {
  double value = 0;
  if (!IsNumber(token_, &value)) return Expected(what);
  Skip();
  return value;
}

}  // namespace sluice::einsum
