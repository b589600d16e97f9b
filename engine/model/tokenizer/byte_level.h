// Returns the characters that stand for bytes in byte-level vocabularies, such as GPT-2's:
// printable bytes of Latin-1 stand for themselves, the others are characters from U+0100 on.
#pragma once

#include <string>
#include <string_view>

namespace sluice::tokenize {

std::string BytesToCharacters(std::string_view bytes);
// Appends the bytes of `text` to `bytes`. Returns false, and appends nothing, if a character does
// not stand for a byte.
bool CharactersToBytes(std::string_view text, std::string* bytes);

}  // namespace sluice::tokenize
