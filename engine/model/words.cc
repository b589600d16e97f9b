#include "engine/model/words.h"

#include <cstddef>

#include "engine/model/tokenizer/unicode.h"

namespace sluice {
namespace {

bool IsOfWord(char32_t point) {
  return point == '_' || tokenize::IsLetter(point) || tokenize::IsNumeric(point);
}

bool IsWhite(char32_t point) {
  return (point >= 0x1C && point <= 0x1F) || tokenize::IsSpace(point);
}

// Walks through a text.
struct Walk {
  std::string_view text;
  size_t at = 0;
  int32_t characters = 0;  // before `at`

  bool ended() const { return at == text.size(); }
  char32_t Next() {
    ++characters;
    return tokenize::NextCodePoint(text, &at);
  }
  // Passes a character of a word, or a hyphen before one. Returns false if neither follows.
  bool PassMore() {
    Walk ahead = *this;
    if (ahead.ended()) return false;
    char32_t point = ahead.Next();
    if (point == '-' && !ahead.ended()) point = ahead.Next();
    if (IsOfWord(point)) *this = ahead;
    return IsOfWord(point);
  }
};

}  // namespace

std::vector<TextWord> SplitWords(std::string_view text) {
  std::vector<TextWord> words;
  for (Walk walk{text}; !walk.ended();) {
    const Walk begin = walk;
    const char32_t point = walk.Next();
    if (IsWhite(point)) continue;
    while (IsOfWord(point) && walk.PassMore()) continue;
    words.push_back({.bytes = {static_cast<int32_t>(begin.at), static_cast<int32_t>(walk.at)},
                     .begin = begin.characters,
                     .end = walk.characters});
  }
  return words;
}

}  // namespace sluice
