// UTF-8 that comes from outside.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace sluice {

struct Utf8Beginning {
  size_t bytes;   // at least 1
  bool complete;  // a character
  bool open;      // may become one
};

// What `text`, which is not empty, begins with: a character, or the longest beginning of one, or a byte
// that begins none. No overlong form, surrogate or number beyond Unicode is a character.
Utf8Beginning MeasureUtf8(absl::string_view text);

// The bytes of `text` before the first that belong to no character.
size_t Utf8Length(absl::string_view text);

inline bool IsUtf8(absl::string_view text) { return Utf8Length(text) == text.size(); }

// `character` is a C0 or C1 control or DEL; in UTF-8, C1 is C2 80 to C2 9F. A terminal may obey it.
bool IsControl(absl::string_view character);

}  // namespace sluice
