// The tokens of a cascade's text.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::einsum {

struct Token {
  enum class Kind { kName, kNumber, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text = {};  // a Unicode form as the ASCII one
  int line = 1;
  int column = 1;  // in characters
};

// Divides a text into tokens. Blanks and comments separate them.
class Lexer {
 public:
  // `text` outlives the lexer and its tokens.
  explicit Lexer(std::string_view text) : text_(text) {}

  // Returns the next token, which is of kind kEnd at and after the end of the text.
  Token Next();

 private:
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  // Returns the column of the next character, from 1.
  int Column();
  void SkipBlanks();
  // A name ends before the '_' of a subscript.
  void SkipName();
  void SkipDigits();
  void SkipNumber();

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  size_t counted_ = 0;  // the bytes before it are counted in column_
  int column_ = 1;
};

}  // namespace sluice::einsum
