// The words of a text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// A word or a single other character of a text.
struct TextWord {
  ByteRange bytes;
  int32_t begin = 0, end = 0;  // in characters
};

// Returns the matches of \w+(?:[-_]\w+)*|\S in the text, with the classes of Python: \w is a
// letter, a number or _, and the separators from U+001C to U+001F are white space. Bytes that are
// not UTF-8 count as U+FFFD. Requires that the text is shorter than 2^31 bytes.
std::vector<TextWord> SplitWords(std::string_view text);

}  // namespace sluice
