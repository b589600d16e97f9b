// Patterns: find matches in a text, and split or replace at them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "engine/model/tokenizer/text_builder.h"

namespace sluice::tokenize {

// A range of bytes of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool match = false;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Calls `visit` for spans that cover all of `text`, which is UTF-8, in order: matches, and the
  // spans between them. A match may be empty. Ends with the first error of a visit. Returns
  // ResourceExhausted if a regular expression takes too long.
  using Visit = absl::FunctionRef<absl::Status(const Span& span)>;
  virtual absl::Status Find(std::string_view text, Visit visit) const = 0;
  // Returns the fewest bytes of a match, or 0 if it is unknown.
  virtual int64_t least_bytes() const { return 0; }
};

// Requires that `literal` is not empty.
std::unique_ptr<const Pattern> MakeLiteralPattern(std::string literal);
// Makes a pattern that matches each character of the class by itself.
std::unique_ptr<const Pattern> MakeClassPattern(bool (*is_in_class)(char32_t point));
// Makes a pattern that matches runs of characters of one script, as the library's UnicodeScripts
// divides a text: kana count as Han, and spaces and characters without a script belong to the run
// before them.
std::unique_ptr<const Pattern> MakeScriptPattern();
// Makes a pattern that matches `length` characters after each other. Requires length > 0.
std::unique_ptr<const Pattern> MakeLengthPattern(size_t length);
// The most steps of all searches in a text, in units of ten thousand backtracking points, each
// about a millisecond. A text has one more unit for each 512 bytes. kOfTexts is for dedicated
// threads that encode whole texts; kOfTokens is for single tokens that are decoded between the
// steps of a model.
enum class SearchLimit : int32_t { kOfTexts = 500, kOfTokens = 1 };
// Makes a pattern of a regular expression in the syntax of Oniguruma (oniguruma.h); an empty one
// matches between all characters. Returns InvalidArgument if it is not valid or not supported. The
// steps in one text are limited, so that no text can block a thread.
absl::StatusOr<std::unique_ptr<const Pattern>> MakeRegexPattern(
    const std::string& expression, SearchLimit limit = SearchLimit::kOfTexts);

// The treatment of matches when a text is split at them. kContiguous makes neighbouring matches one
// piece.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
constexpr auto EnumNamesOf(SplitBehavior) {
  using enum SplitBehavior;
  return EnumNameTable<SplitBehavior>({{kRemoved, "Removed"},
                                       {kIsolated, "Isolated"},
                                       {kMergedWithPrevious, "MergedWithPrevious"},
                                       {kMergedWithNext, "MergedWithNext"},
                                       {kContiguous, "Contiguous"}});
}
// Calls `visit` for each part of `text`, in order. No part is empty. `invert` exchanges matches and
// the spans between them.
absl::Status Split(const Pattern& pattern, std::string_view text, SplitBehavior behavior,
                   bool invert, absl::FunctionRef<absl::Status(std::string_view part)> visit);

// Appends `text`, with each match replaced by `content`.
absl::Status Replace(const Pattern& pattern, std::string_view text, std::string_view content,
                     TextBuilder* out);

}  // namespace sluice::tokenize
