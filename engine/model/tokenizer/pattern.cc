#include "engine/model/tokenizer/pattern.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/uscript.h>
#include <unicode/utf16.h>

#include <algorithm>
#include <optional>
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
// ICU counts the steps of all searches in a text together. Usual expressions need a unit of them
// for each 1,500 bytes or more.
constexpr size_t kBytesOfUnit = 512;
constexpr size_t kMostUnits = size_t{1} << 20;

// Visits matches and the spans between them.
class Spans {
 public:
  explicit Spans(Pattern::Visit visit) : visit_(visit) {}

  absl::Status Match(size_t begin, size_t end) {
    if (end_ < begin) SLUICE_RETURN_IF_ERROR(visit_({end_, begin, false}));
    end_ = end;
    any_ = true;
    return visit_({begin, end, true});
  }
  absl::Status Rest(size_t size) {
    return end_ < size ? visit_({end_, size, false}) : absl::OkStatus();
  }
  // Returns whether a match ends at this byte.
  bool EndsAt(size_t byte) const { return any_ && end_ == byte; }

 private:
  Pattern::Visit visit_;
  size_t end_ = 0;  // of the last match
  bool any_ = false;
};

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}

  absl::Status Find(std::string_view text, Visit visit) const override {
    Spans spans(visit);
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      SLUICE_RETURN_IF_ERROR(spans.Match(at, at + literal_.size()));
    }
    return spans.Rest(text.size());
  }
  int64_t least_bytes() const override { return std::ssize(literal_); }

 private:
  std::string literal_;
};

class ClassPattern final : public Pattern {
 public:
  explicit ClassPattern(bool (*is_in_class)(char32_t)) : is_in_class_(is_in_class) {}

  absl::Status Find(std::string_view text, Visit visit) const override {
    Spans spans(visit);
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      if (is_in_class_(NextCodePoint(text, &at))) {
        SLUICE_RETURN_IF_ERROR(spans.Match(begin, at));
      }
    }
    return spans.Rest(text.size());
  }

 private:
  bool (*is_in_class_)(char32_t);
};

// Returns the script that a character counts for, if any.
std::optional<int> RunScriptOf(char32_t point) {
  constexpr char32_t kProlongedSound = 0x30FC;
  if (point == ' ') return std::nullopt;
  const std::optional<int> script = ScriptOf(point);
  const bool kana = script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA;
  return kana || point == kProlongedSound ? USCRIPT_HAN : script;
}

class ScriptPattern final : public Pattern {
 public:
  absl::Status Find(std::string_view text, Visit visit) const override {
    Spans spans(visit);
    std::optional<int> last;
    size_t run = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const std::optional<int> script = RunScriptOf(NextCodePoint(text, &at));
      if (!script.has_value() || script == last) continue;
      if (last.has_value()) SLUICE_RETURN_IF_ERROR(spans.Match(run, begin));
      run = begin;
      last = script;
    }
    if (last.has_value()) SLUICE_RETURN_IF_ERROR(spans.Match(run, text.size()));
    return spans.Rest(text.size());
  }
};

class LengthPattern final : public Pattern {
 public:
  explicit LengthPattern(size_t length) : length_(length) {}

  absl::Status Find(std::string_view text, Visit visit) const override {
    Spans spans(visit);
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      for (size_t i = 0; i < length_ && at < text.size(); ++i) NextCodePoint(text, &at);
      SLUICE_RETURN_IF_ERROR(spans.Match(begin, at));
    }
    return absl::OkStatus();
  }

 private:
  const size_t length_;
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

  absl::Status Find(std::string_view text, Visit visit) const override {
    WorkMemory memory;
    SLUICE_RETURN_IF_ERROR(memory.Hold(std::ssize(text) * kWideBytesOfByte));
    const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(
        icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
    UErrorCode error = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(wide, error));
    const size_t limit = limit_ + std::min(text.size() / kBytesOfUnit, kMostUnits);
    if (U_SUCCESS(error)) matcher->setTimeLimit(limit, error);
    if (U_SUCCESS(error)) matcher->setStackLimit(kMaxStackBytes, error);
    if (U_SUCCESS(error)) matcher->setMatchCallback(&GoesOn, nullptr, error);
    Spans spans(visit);
    PlaceInUtf8 place(text);
    InterruptionCounter counter;
    while (U_SUCCESS(error) && matcher->find(error) != 0) {
      SLUICE_RETURN_IF_ERROR(counter.Check());
      const size_t begin = place.Of(matcher->start(error));
      const size_t end = place.Of(matcher->end(error));
      // An empty match does not follow another match at once, as in the library.
      if (begin == end && spans.EndsAt(end)) continue;
      SLUICE_RETURN_IF_ERROR(spans.Match(begin, end));
    }
    if (error == U_REGEX_STOPPED_BY_CALLER) return CheckInterruption();
    if (U_FAILURE(error)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a regular expression of the tokenizer takes too long here: ", u_errorName(error)));
    }
    return spans.Rest(text.size());
  }

 private:
  // ICU calls this after each unit of steps.
  static UBool U_CALLCONV GoesOn(const void* /*context*/, int32_t /*steps*/) {
    return CheckInterruption().ok() ? 1 : 0;
  }

  const std::unique_ptr<const icu::RegexPattern> pattern_;
  const int32_t limit_;
};

// Joins spans as a behavior states. It keeps the last span until the next one is known.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, Pattern::Visit visit) : behavior_(behavior), visit_(visit) {}

  absl::Status Add(const Span& span) {
    if (kept_ && Joins(*kept_, span)) {
      kept_ = Span{kept_->begin, span.end, span.match};
      return absl::OkStatus();
    }
    SLUICE_RETURN_IF_ERROR(Flush());
    kept_ = span;
    return absl::OkStatus();
  }
  absl::Status Flush() {
    if (!kept_) return absl::OkStatus();
    const Span span = *kept_;
    kept_.reset();
    return visit_(span);
  }

 private:
  bool Joins(const Span& before, const Span& after) const {
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious:
        return after.match && !before.match;
      case SplitBehavior::kMergedWithNext:
        return before.match && !after.match;
      case SplitBehavior::kContiguous:
        return before.match == after.match;
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated:
        break;
    }
    return false;
  }

  SplitBehavior behavior_;
  Pattern::Visit visit_;
  std::optional<Span> kept_;
};

}  // namespace

std::unique_ptr<const Pattern> MakeLiteralPattern(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}

std::unique_ptr<const Pattern> MakeClassPattern(bool (*is_in_class)(char32_t point)) {
  return std::make_unique<ClassPattern>(is_in_class);
}

std::unique_ptr<const Pattern> MakeScriptPattern() { return std::make_unique<ScriptPattern>(); }

std::unique_ptr<const Pattern> MakeLengthPattern(size_t length) {
  return std::make_unique<LengthPattern>(length);
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

absl::Status Split(const Pattern& pattern, std::string_view text, SplitBehavior behavior,
                   bool invert, absl::FunctionRef<absl::Status(std::string_view part)> visit) {
  const auto visit_part = [&](const Span& span) {
    const bool removed = span.match && behavior == SplitBehavior::kRemoved;
    if (removed || span.begin == span.end) return absl::OkStatus();
    return visit(text.substr(span.begin, span.end - span.begin));
  };
  Joiner joiner(behavior, visit_part);
  SLUICE_RETURN_IF_ERROR(pattern.Find(text, [&](const Span& span) {
    return joiner.Add({span.begin, span.end, span.match != invert});
  }));
  return joiner.Flush();
}

absl::Status Replace(const Pattern& pattern, std::string_view text, std::string_view content,
                     TextBuilder* out) {
  return pattern.Find(text, [&](const Span& span) {
    out->Append(span.match ? content : text.substr(span.begin, span.end - span.begin));
    return absl::OkStatus();
  });
}

}  // namespace sluice::tokenize
