// UTF-8 and the classes of characters that tokenizers are written in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::tokenize {

// U+FFFD, which stands for what is no UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The code point that begins at `*at` < text.size(); `*at` moves behind it. For bytes that are no
// UTF-8: U+FFFD for each maximal part of a character (The Unicode Standard, chapter 3.9).
char32_t NextCodePoint(std::string_view text, size_t* at);
void AppendUtf8(char32_t point, std::string* text);
// `text` with U+FFFD for what is no UTF-8.
std::string ToValidUtf8(std::string_view text);
size_t CountCodePoints(std::string_view text);

// The property White_Space.
bool IsSpace(char32_t point);
// General category P, or a symbol of ASCII.
bool IsPunctuation(char32_t point);
// General category N.
bool IsNumeric(char32_t point);
// What regular expressions call \w (Unicode Technical Standard 18, annex C).
bool IsWord(char32_t point);
// General category M.
bool IsMark(char32_t point);
bool IsNonspacingMark(char32_t point);
// General category C, except tab and line ends.
bool IsControl(char32_t point);
// The ideographs around which BERT's tokenizer puts spaces.
bool IsIdeograph(char32_t point);
// Each character's own full mapping, whatever is around it.
std::string ToLower(std::string_view text);

enum class NormalForm { kC, kD, kKC, kKD };
// `text` is UTF-8.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace sluice::tokenize
