// The order of texts and special tokens in a row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

// The tokens of a row, and their types.
struct TypedTokens {
  std::vector<int32_t> ids;
  std::vector<int32_t> types;  // one for each token
};

struct TextTemplate {
  static constexpr int32_t kNoText = -1;
  struct Element {
    int32_t text = kNoText;  // the index of a text, inserted here
    int32_t token = 0;       // the inserted token if there is no text
    int32_t type = 0;        // of all tokens of the part

    bool operator==(const Element&) const = default;
  };
  std::vector<Element> parts;

  // Returns the template of a text without tokens around it.
  static TextTemplate TextOnly() { return {{{.text = 0}}}; }

  // Returns the number of special tokens.
  int64_t specials() const;
  // Appends the tokens of a row of these texts. The number of texts must match the template.
  void Append(std::span<const std::span<const int32_t>> texts, TypedTokens* row) const;

  bool operator==(const TextTemplate&) const = default;
};

// The templates of a tokenizer.
struct TextTemplates {
  TextTemplate single = TextTemplate::TextOnly();
  std::optional<TextTemplate> pair = std::nullopt;  // absent if the tokenizer's files have none
};

}  // namespace sluice
