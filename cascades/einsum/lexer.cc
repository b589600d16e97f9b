#include "cascades/einsum/lexer.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "base/utf8.h"

namespace sluice::einsum {
namespace {

struct UnicodeForm {
  std::string_view text;
  Token::Kind kind;
  std::string_view ascii;
};

constexpr UnicodeForm kUnicodeForms[] = {
    {"⋀", Token::Kind::kName, "map"},    {"∧", Token::Kind::kName, "map"},
    {"⋁", Token::Kind::kName, "reduce"}, {"∨", Token::Kind::kName, "reduce"},
    {"·", Token::Kind::kSymbol, "."},    {"×", Token::Kind::kName, "x"},
    {"÷", Token::Kind::kSymbol, "/"},    {"−", Token::Kind::kSymbol, "-"},
    {"∩", Token::Kind::kName, "and"},    {"∪", Token::Kind::kName, "or"},
    {"←", Token::Kind::kName, "left"},   {"𝟙", Token::Kind::kNumber, "1"},
    {"≤", Token::Kind::kSymbol, "<="},   {"≥", Token::Kind::kSymbol, ">="},
    {"∞", Token::Kind::kName, "inf"},    {"σ", Token::Kind::kName, "sigmoid"},
};

}  // namespace

Token Lexer::Next() {
  SkipBlanks();
  Token token{.line = line_, .column = Column()};
  if (at_ == text_.size()) return token;
  for (const UnicodeForm& form : kUnicodeForms) {
    if (!text_.substr(at_).starts_with(form.text)) continue;
    at_ += form.text.size();
    token.kind = form.kind;
    token.text = form.ascii;
    return token;
  }
  const size_t begin = at_;
  if (absl::ascii_isalpha(text_[at_])) {
    token.kind = Token::Kind::kName;
    SkipName();
  } else if (absl::ascii_isdigit(text_[at_])) {
    token.kind = Token::Kind::kNumber;
    SkipNumber();
  } else {
    token.kind = Token::Kind::kSymbol;
    const std::string_view two = text_.substr(at_, 2);
    const bool is_two = two == "::" || two == "<=" || two == ">=" || two == "==";
    const absl::string_view rest(text_.data() + at_, text_.size() - at_);
    const Utf8Beginning first = MeasureUtf8(rest);
    at_ += is_two ? 2 : first.complete ? first.bytes : 1;
  }
  token.text = text_.substr(begin, at_ - begin);
  return token;
}

void Lexer::SkipBlanks() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '#') {
      while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
    } else if (text_[at_] == '\n') {
      ++line_;
      counted_ = at_ + 1;
      column_ = 1;
    } else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\r') {
      return;
    }
  }
}

int Lexer::Column() {
  for (; counted_ < at_; ++counted_) {
    const bool continues = (static_cast<uint8_t>(text_[counted_]) & 0xC0) == 0x80;
    if (!continues) ++column_;
  }
  return column_;
}

void Lexer::SkipName() {
  while (absl::ascii_isalnum(Peek()) || (Peek() == '_' && Peek(1) != '{')) ++at_;
}

void Lexer::SkipDigits() {
  while (absl::ascii_isdigit(Peek())) ++at_;
}

void Lexer::SkipNumber() {
  SkipDigits();
  if (Peek() == '.' && absl::ascii_isdigit(Peek(1))) {
    ++at_;
    SkipDigits();
  }
  const size_t sign = Peek(1) == '+' || Peek(1) == '-' ? 1 : 0;
  if (Peek() == 'e' && absl::ascii_isdigit(Peek(1 + sign))) {
    at_ += 1 + sign;
    SkipDigits();
  }
}

}  // namespace sluice::einsum
