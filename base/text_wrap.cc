#include "base/text_wrap.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

// Returns the Levenshtein distance, computed one row of the table at a time.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> Wrap(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back(word);
    } else {
      absl::StrAppend(&lines.back(), " ", word);
    }
  }
  return lines;
}

std::string Suggestion(absl::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 128;  // the comparison takes quadratic time
  if (word.size() > kLongestWord) return "";
  size_t nearest = word.size() / 3 + 2;  // close enough for a typing error
  const std::string* found = nullptr;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance >= nearest) continue;
    nearest = distance;
    found = &candidate;
  }
  return found == nullptr ? "" : absl::StrCat("; did you mean ", *found, "?");
}

}  // namespace sluice
