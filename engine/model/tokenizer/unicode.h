// UTF-8, and the classes of characters that tokenizers use.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/tokenizer/text_builder.h"

namespace sluice::tokenize {

// U+FFFD, which replaces bytes that are not UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns the code point that begins at `*at` < text.size(), and moves `*at` to the next one. For
// bytes that are not UTF-8 it returns U+FFFD, once for each maximal part of a character (the
// Unicode Standard, chapter 3.9).
char32_t NextCodePoint(std::string_view text, size_t* at);
inline constexpr size_t kMaxUtf8Bytes = 4;
// Writes a code point to `bytes`, which has room for kMaxUtf8Bytes, and returns their number.
size_t ToUtf8(char32_t point, char* bytes);
void AppendUtf8(char32_t point, std::string* text);
// Returns `text` with U+FFFD for bytes that are not UTF-8.
std::string ToValidUtf8(std::string_view text);
void AppendValidUtf8(std::string_view text, TextBuilder* valid);
size_t CountCodePoints(std::string_view text);
// ICU's copy of a text in UTF-16 takes at most this many bytes for each byte of UTF-8.
inline constexpr int64_t kWideBytesOfByte = 2;

// Returns whether the character has the property White_Space.
bool IsSpace(char32_t point);
// Returns whether the character has general category P, or is a symbol of ASCII.
bool IsPunctuation(char32_t point);
// Returns whether the character has general category L.
bool IsLetter(char32_t point);
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
// Returns a number for the script of the character, or nullopt if no script is assigned to it.
std::optional<int> ScriptOf(char32_t point);
// Returns whether the character is an ideograph around which BERT's tokenizer puts spaces.
bool IsIdeograph(char32_t point);
// Appends the full lower-case mapping of a character, independent of its neighbours.
void AppendLower(char32_t point, TextBuilder* text);

// Maps a whole text as Python's str.lower() does: a final capital sigma becomes a final sigma.
// Requires that `text` is UTF-8.
std::string ToLowerText(std::string_view text);

// Returns the canonical combining class of a character.
int CombiningClass(char32_t point);
// Returns the character that is canonically equal to the pair, if there is one.
std::optional<char32_t> ComposedPair(char32_t first, char32_t second);

enum class NormalForm { kC, kD, kKC, kKD };
// Returns whether a text may be divided before the character and normalised part by part.
bool BeginsPart(char32_t point, NormalForm form);
// Appends the normal form of `text`, which must be UTF-8.
void Normalize(std::string_view text, NormalForm form, TextBuilder* normal);

}  // namespace sluice::tokenize
