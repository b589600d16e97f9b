// Where a text matches, and what is made of it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace sluice::tokenize {

// Bytes of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool match = false;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // All of `text`, which is UTF-8, in order: matches, and what lies between them. A match may be
  // empty. ResourceExhausted where a regular expression takes too long.
  virtual absl::StatusOr<std::vector<Span>> Find(std::string_view text) const = 0;
};

// Not empty.
std::unique_ptr<const Pattern> MakeLiteralPattern(std::string literal);
// Each character of the class is a match.
std::unique_ptr<const Pattern> MakeClassPattern(bool (*is_in_class)(char32_t point));
// InvalidArgument for what is no regular expression (of ICU's syntax). The time for one search is
// limited, so that no text can keep a thread.
absl::StatusOr<std::unique_ptr<const Pattern>> MakeRegexPattern(const std::string& expression);

// What becomes of the matches when a text is split at them. kContiguous: neighbouring matches are
// one piece.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
constexpr auto EnumNamesOf(SplitBehavior) {
  using enum SplitBehavior;
  return EnumNameTable<SplitBehavior>({{kRemoved, "Removed"},
                                       {kIsolated, "Isolated"},
                                       {kMergedWithPrevious, "MergedWithPrevious"},
                                       {kMergedWithNext, "MergedWithNext"},
                                       {kContiguous, "Contiguous"}});
}
std::vector<std::string_view> Split(std::string_view text, const std::vector<Span>& spans,
                                    SplitBehavior behavior);

// Each match by `content`. OutOfRange where the result would be above kMaxTextBytes.
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;
absl::StatusOr<std::string> Replace(std::string_view text, const std::vector<Span>& spans,
                                    std::string_view content);

}  // namespace sluice::tokenize
