// Small helpers for text that people read.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

// Returns lines of at most `width` bytes, broken at spaces; a longer word has a line of its own.
std::vector<std::string> Wrap(absl::string_view text, size_t width);

// Returns "; did you mean X?" with the candidate nearest to `word`, or an empty string if none is
// near.
std::string Suggestion(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace sluice
