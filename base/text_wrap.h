// Small helpers on text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

// Lines of at most `width` bytes, broken at spaces; a longer word has its own line.
std::vector<std::string> Wrap(absl::string_view text, size_t width);

// "; did you mean X?" with the candidate nearest to `word`, or nothing when none is near.
std::string Suggestion(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace sluice
