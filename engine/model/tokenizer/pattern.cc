#include "engine/model/tokenizer/pattern.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/utf16.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/oniguruma.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

constexpr size_t kMaxExpressionBytes = 65536;
constexpr int32_t kMaxStackBytes = 8 << 20;

void AddMatch(size_t begin, size_t end, std::vector<Span>* spans) {
  const size_t last = spans->empty() ? 0 : spans->back().end;
  if (last < begin) spans->push_back({last, begin, false});
  spans->push_back({begin, end, true});
}

void AddRest(size_t size, std::vector<Span>* spans) {
  const size_t last = spans->empty() ? 0 : spans->back().end;
  if (last < size) spans->push_back({last, size, false});
}

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}

  absl::StatusOr<std::vector<Span>> Find(std::string_view text) const override {
    std::vector<Span> spans;
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      AddMatch(at, at + literal_.size(), &spans);
    }
    AddRest(text.size(), &spans);
    return spans;
  }

 private:
  std::string literal_;
};

class ClassPattern final : public Pattern {
 public:
  explicit ClassPattern(bool (*is_in_class)(char32_t)) : is_in_class_(is_in_class) {}

  absl::StatusOr<std::vector<Span>> Find(std::string_view text) const override {
    std::vector<Span> spans;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      if (is_in_class_(NextCodePoint(text, &at))) AddMatch(begin, at, &spans);
    }
    AddRest(text.size(), &spans);
    return spans;
  }

 private:
  bool (*is_in_class_)(char32_t);
};

// Converts ascending positions in UTF-16 to positions in UTF-8.
class PlaceInUtf8 {
 public:
  explicit PlaceInUtf8(std::string_view text) : text_(text) {}

  size_t Of(int32_t place) {
    while (utf16_ < place) utf16_ += U16_LENGTH(NextCodePoint(text_, &utf8_));
    return utf8_;
  }

 private:
  std::string_view text_;
  size_t utf8_ = 0;
  int32_t utf16_ = 0;
};

class RegexPattern final : public Pattern {
 public:
  RegexPattern(std::unique_ptr<const icu::RegexPattern> pattern, SearchLimit limit)
      : pattern_(std::move(pattern)), limit_(static_cast<int32_t>(limit)) {}

  absl::StatusOr<std::vector<Span>> Find(std::string_view text) const override {
    const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(
        icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
    UErrorCode error = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(wide, error));
    if (U_SUCCESS(error)) matcher->setTimeLimit(limit_, error);
    if (U_SUCCESS(error)) matcher->setStackLimit(kMaxStackBytes, error);
    if (U_SUCCESS(error)) matcher->setMatchCallback(&GoesOn, nullptr, error);
    std::vector<Span> spans;
    PlaceInUtf8 place(text);
    InterruptionCounter counter;
    while (U_SUCCESS(error) && matcher->find(error) != 0) {
      SLUICE_RETURN_IF_ERROR(counter.Check());
      const size_t begin = place.Of(matcher->start(error));
      const size_t end = place.Of(matcher->end(error));
      // An empty match does not follow another match at once, as in the library.
      if (begin == end && !spans.empty() && spans.back().match && spans.back().end == end) continue;
      AddMatch(begin, end, &spans);
    }
    if (error == U_REGEX_STOPPED_BY_CALLER) return CheckInterruption();
    if (U_FAILURE(error)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a regular expression of the tokenizer takes too long here: ", u_errorName(error)));
    }
    AddRest(text.size(), &spans);
    return spans;
  }

 private:
  // ICU calls this after each unit of steps.
  static UBool U_CALLCONV GoesOn(const void* /*context*/, int32_t /*steps*/) {
    return CheckInterruption().ok() ? 1 : 0;
  }

  const std::unique_ptr<const icu::RegexPattern> pattern_;
  const int32_t limit_;
};

std::vector<Span> Joined(const std::vector<Span>& spans, bool to_previous) {
  std::vector<Span> joined;
  bool after_match = false;
  for (const Span& span : spans) {
    if (span.match && !after_match && !joined.empty()) {
      (to_previous ? joined.back().end : joined.back().begin) = to_previous ? span.end : span.begin;
    } else {
      joined.push_back(span);
    }
    after_match = span.match;
  }
  return joined;
}

std::vector<Span> Contiguous(const std::vector<Span>& spans) {
  std::vector<Span> joined;
  for (const Span& span : spans) {
    if (!joined.empty() && joined.back().match == span.match) {
      joined.back().end = span.end;
    } else {
      joined.push_back(span);
    }
  }
  return joined;
}

std::vector<Span> Pieces(std::vector<Span> spans, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.match; });
      break;
    case SplitBehavior::kMergedWithPrevious:
      return Joined(spans, /*to_previous=*/true);
    case SplitBehavior::kMergedWithNext: {
      std::reverse(spans.begin(), spans.end());
      std::vector<Span> joined = Joined(spans, /*to_previous=*/false);
      std::reverse(joined.begin(), joined.end());
      return joined;
    }
    case SplitBehavior::kContiguous:
      return Contiguous(spans);
  }
  return spans;
}

}  // namespace

std::unique_ptr<const Pattern> MakeLiteralPattern(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}

std::unique_ptr<const Pattern> MakeClassPattern(bool (*is_in_class)(char32_t point)) {
  return std::make_unique<ClassPattern>(is_in_class);
}

absl::StatusOr<std::unique_ptr<const Pattern>> MakeRegexPattern(const std::string& expression,
                                                                SearchLimit limit) {
  if (expression.size() > kMaxExpressionBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", expression.size(), " bytes; the limit is ", kMaxExpressionBytes));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string translated, FromOniguruma(expression));
  UErrorCode error = U_ZERO_ERROR;
  UParseError place;
  std::unique_ptr<const icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(translated),
                                 UREGEX_MULTILINE | UREGEX_UNIX_LINES, place, error));
  if (U_FAILURE(error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is not a regular expression: ", u_errorName(error), " at character ", place.offset));
  }
  return std::make_unique<RegexPattern>(std::move(pattern), limit);
}

std::vector<std::string_view> Split(std::string_view text, const std::vector<Span>& spans,
                                    SplitBehavior behavior) {
  std::vector<std::string_view> pieces;
  for (const Span& span : Pieces(spans, behavior)) {
    if (span.begin < span.end) pieces.push_back(text.substr(span.begin, span.end - span.begin));
  }
  return pieces;
}

absl::StatusOr<std::string> Replace(std::string_view text, const std::vector<Span>& spans,
                                    std::string_view content) {
  size_t size = 0;
  for (const Span& span : spans) size += span.match ? content.size() : span.end - span.begin;
  if (size > kMaxTextBytes) {
    return absl::OutOfRangeError(absl::StrCat("the tokenizer makes ", size,
                                              " bytes of the text; the limit is ", kMaxTextBytes));
  }
  std::string replaced;
  replaced.reserve(size);
  for (const Span& span : spans) {
    replaced += span.match ? content : text.substr(span.begin, span.end - span.begin);
  }
  return replaced;
}

}  // namespace sluice::tokenize
