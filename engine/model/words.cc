#include "engine/model/words.h"

#include <cstddef>
#include <optional>

#include "engine/model/tokenizer/unicode.h"

namespace sluice {
namespace {

bool IsOfWord(char32_t point, WordKind kind) {
  if (point == '_' || tokenize::IsLetter(point) || tokenize::IsNumeric(point)) return true;
  return kind == WordKind::kLinks &&
         (tokenize::IsMark(point) || point == 0x200C || point == 0x200D);
}

bool IsWhite(char32_t point) {
  return (point >= 0x1C && point <= 0x1F) || tokenize::IsSpace(point);
}

// Python's [a-z] in any case also has the characters whose other case is one of these letters.
bool IsLatin(char32_t point) {
  return (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z') || point == 0x130 ||
         point == 0x131 || point == 0x17F || point == 0x212A;
}

bool IsLatinOrDigit(char32_t point) { return IsLatin(point) || (point >= '0' && point <= '9'); }

bool IsOfDomain(char32_t point) { return IsLatinOrDigit(point) || point == '.' || point == '-'; }

bool IsOfUser(char32_t point) {
  return IsOfDomain(point) || point == '_' || point == '%' || point == '+';
}

// Returns whether the character is a small ASCII letter in any case.
bool Matches(char32_t point, char letter) {
  return point == static_cast<char32_t>(letter) ||
         (letter >= 'a' && letter <= 'z' && point == static_cast<char32_t>(letter - 'a' + 'A')) ||
         (letter == 's' && point == 0x17F);
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
  char32_t Peek() const {
    Walk ahead = *this;
    return ahead.Next();
  }
  // Passes a character of a word, or a hyphen before one. Returns false if neither follows.
  bool PassMore(WordKind kind) {
    Walk ahead = *this;
    if (ahead.ended()) return false;
    char32_t point = ahead.Next();
    if (point == '-' && !ahead.ended()) point = ahead.Next();
    const bool more = IsOfWord(point, kind);
    if (more) *this = ahead;
    return more;
  }
  // Passes all characters of the class. Returns their number.
  template <typename OfClass>
  int64_t PassAll(OfClass of_class) {
    const int32_t before = characters;
    while (!ended() && of_class(Peek())) Next();
    return characters - before;
  }
  // Passes the letters, in any case, if they follow.
  bool Pass(std::string_view letters) {
    Walk ahead = *this;
    for (const char letter : letters) {
      if (ahead.ended() || !Matches(ahead.Next(), letter)) return false;
    }
    *this = ahead;
    return true;
  }
};

// Finds links, addresses and names after @.
class Links {
 public:
  // Returns the end of the match at `begin`, if there is one. Requires calls in the order of the
  // text.
  std::optional<Walk> Find(const Walk& begin) {
    Walk walk = begin;
    const bool scheme = walk.Pass("http");
    if (scheme) walk.Pass("s");
    if (scheme ? walk.Pass("://") : walk.Pass("www.")) {
      if (walk.PassAll([](char32_t point) { return !IsWhite(point); }) > 0) return walk;
    }
    if (std::optional<Walk> address = FindAddress(begin)) return address;
    walk = begin;
    if (!walk.Pass("@")) return std::nullopt;
    const auto of_name = [](char32_t point) { return IsLatinOrDigit(point) || point == '_'; };
    if (walk.PassAll(of_name) > 0) return walk;
    return std::nullopt;
  }

 private:
  // The end of an address depends only on the end of its user's name, so it is computed once for
  // all places in the name.
  std::optional<Walk> FindAddress(const Walk& begin) {
    if (begin.at >= user_end_) {
      Walk walk = begin;
      if (walk.PassAll(IsOfUser) == 0) return std::nullopt;
      user_end_ = walk.at;
      address_ = walk.Pass("@") ? EndOfDomain(walk) : std::nullopt;
    }
    return address_;
  }

  // Returns the place after the last dot that two letters follow, and all letters there.
  static std::optional<Walk> EndOfDomain(Walk walk) {
    std::optional<Walk> end;
    for (bool first = true; !walk.ended() && IsOfDomain(walk.Peek()); first = false) {
      if (walk.Next() != '.' || first) continue;
      Walk letters = walk;
      if (letters.PassAll(IsLatin) < 2) continue;
      end = walk = letters;
    }
    return end;
  }

  size_t user_end_ = 0;
  std::optional<Walk> address_;
};

}  // namespace

std::vector<TextWord> SplitWords(std::string_view text, WordKind kind) {
  std::vector<TextWord> words;
  Links links;
  for (Walk walk{text}; !walk.ended();) {
    const Walk begin = walk;
    const char32_t point = walk.Next();
    if (IsWhite(point)) continue;
    const std::optional<Walk> link =
        kind == WordKind::kLinks ? links.Find(begin) : std::optional<Walk>();
    if (link) {
      walk = *link;
    } else {
      while (IsOfWord(point, kind) && walk.PassMore(kind)) continue;
    }
    words.push_back({.bytes = {static_cast<int32_t>(begin.at), static_cast<int32_t>(walk.at)},
                     .begin = begin.characters,
                     .end = walk.characters});
  }
  return words;
}

std::string EncodedText(std::string_view word, WordKind kind) {
  if (kind == WordKind::kPlain) return std::string(word);
  return tokenize::ToLowerText(tokenize::ToValidUtf8(word));
}

bool NeedsFullStop(std::string_view text, WordKind kind) {
  constexpr std::string_view kMarks = ".!?";
  if (kind == WordKind::kPlain) return false;
  return text.empty() || kMarks.find(text.back()) == std::string_view::npos;
}

}  // namespace sluice
