// Checks of UTF-8 that comes from outside.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace sluice {

struct Utf8Beginning {
  size_t bytes;   // >= 1
  bool complete;  // whether they are a character
  bool open;      // whether more bytes may make them a character
};

// Returns the size and kind of the beginning of `text`: a character, the longest prefix of one, or
// a byte that begins no character. Overlong forms, surrogates and numbers beyond Unicode are not
// characters. Requires that `text` is not empty.
Utf8Beginning MeasureUtf8(absl::string_view text);

// Returns the number of bytes of `text` before the first that belongs to no character.
size_t Utf8Length(absl::string_view text);

inline bool IsUtf8(absl::string_view text) { return Utf8Length(text) == text.size(); }

// Returns whether `character` is a C0 or C1 control or DEL, which a terminal may obey. In UTF-8, C1
// is C2 80 to C2 9F.
bool IsControl(absl::string_view character);

}  // namespace sluice
