// The characters that stand for bytes in byte-level vocabularies (those of GPT-2): printable bytes of
// Latin-1 for themselves, the others from U+0100 on.
#pragma once

#include <string>
#include <string_view>

namespace sluice::tokenize {

std::string BytesToCharacters(std::string_view bytes);
// The other way, appended to `bytes`. False, and nothing appended, if a character stands for no byte.
bool CharactersToBytes(std::string_view text, std::string* bytes);

}  // namespace sluice::tokenize
