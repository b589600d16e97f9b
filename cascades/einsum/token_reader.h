// Reads the tokens of a cascade's text one after another, with one token of lookahead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cascades/einsum/lexer.h"
#include "cascades/einsum/text.h"

namespace sluice::einsum {

class TokenReader {
 public:
  // `text` outlives the reader and its tokens.
  explicit TokenReader(std::string_view text)
      : lexer_(text), token_(lexer_.Next()), next_(lexer_.Next()) {}

  const Token& token() const { return token_; }
  const Token& next() const { return next_; }  // the token after `token`

  bool Is(std::string_view text) const {
    return token_.kind != Token::Kind::kEnd && token_.text == text;
  }
  void Skip();
  // Replaces the text of the token. `text` outlives the reader.
  void ReadAs(std::string_view text) { token_.text = text; }
  // Skips the token and returns true if it is `text`.
  bool Take(std::string_view text);

  // These return the error that something else was expected, with the place of the token.
  absl::Status Expect(std::string_view text);
  absl::StatusOr<std::string> Name(std::string_view what);
  absl::StatusOr<int64_t> Integer();
  absl::StatusOr<double> Number(std::string_view what);
  // Reads a name of an enumerator, or its symbol.
  template <typename E>
  absl::StatusOr<E> Word(std::string_view what) {
    const std::optional<E> value = EnumOf<E>(token_.text);
    if (!value || token_.kind == Token::Kind::kEnd) return Expected(what);
    Skip();
    return *value;
  }

  absl::Status Expected(std::string_view what) const;
  static absl::Status ErrorAt(const Token& token, std::string_view message);

 private:
  Lexer lexer_;
  Token token_;
  Token next_;
};

}  // namespace sluice::einsum
