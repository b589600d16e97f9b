// The words of a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/serving_config.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// A word or a single other character of a text.
struct TextWord {
  ByteRange bytes;
  int32_t begin = 0, end = 0;  // in characters
};

// Returns the matches of an expression in the text, with the classes of Python: \w is a letter, a
// number or _, and the separators from U+001C to U+001F are white space.
//   kPlain   \w+(?:[-_]\w+)*|\S
//   kLinks   https?://\S+|www\.\S+|[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}|@[a-z0-9_]+|W+(?:[-_]W+)*
//            |\S in any case, where W is \w, a mark (category M), U+200C or U+200D
// Bytes that are not UTF-8 count as U+FFFD. Takes time in proportion to the text. Requires that the
// text is shorter than 2^31 bytes.
std::vector<TextWord> SplitWords(std::string_view text, WordKind kind);

// Returns the text of a word that is encoded.
std::string EncodedText(std::string_view word, WordKind kind);

// Returns whether a full stop is added to the text before it is divided.
bool NeedsFullStop(std::string_view text, WordKind kind);

}  // namespace sluice
