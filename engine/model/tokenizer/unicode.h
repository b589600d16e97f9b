// UTF-8, and the classes of characters that tokenizers use.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::tokenize {

// U+FFFD, which replaces bytes that are not UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns the code point that begins at `*at` < text.size(), and moves `*at` to the next one. For
// bytes that are not UTF-8 it returns U+FFFD, once for each maximal part of a character (the
// Unicode Standard, chapter 3.9).
char32_t NextCodePoint(std::string_view text, size_t* at);
void AppendUtf8(char32_t point, std::string* text);
// Returns `text` with U+FFFD for bytes that are not UTF-8.
std::string ToValidUtf8(std::string_view text);
size_t CountCodePoints(std::string_view text);

// Returns whether the character has the property White_Space.
bool IsSpace(char32_t point);
// Returns whether the character has general category P, or is a symbol of ASCII.
bool IsPunctuation(char32_t point);
// Returns whether the character has general category N.
bool IsNumeric(char32_t point);
// Returns whether \w of regular expressions matches (Unicode Technical Standard 18, annex C).
bool IsWord(char32_t point);
// Returns whether the character has general category M.
bool IsMark(char32_t point);
bool IsNonspacingMark(char32_t point);
// Returns whether the character has general category Cc, Cf or Co, except tab and line ends. A
// character that a newer Unicode assigns is not a control character.
bool IsControl(char32_t point);
// Returns whether the character is an ideograph around which BERT's tokenizer puts spaces.
bool IsIdeograph(char32_t point);
// Maps each character by its own full mapping, independent of its neighbours.
std::string ToLower(std::string_view text);

// Maps a whole text as Python's str.lower() does: a final capital sigma becomes a final sigma.
// Requires that `text` is UTF-8.
std::string ToLowerText(std::string_view text);

enum class NormalForm { kC, kD, kKC, kKD };
// Requires that `text` is UTF-8.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace sluice::tokenize
