#include "engine/model/tokenizer/charsmap.h"

#include <unicode/brkiter.h>
#include <unicode/unistr.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/work_memory.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

constexpr size_t kGraphemeBytes = 6;

// These functions return the fields of a unit of the array.
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }
bool HasLeaf(uint32_t unit) { return ((unit >> 8) & 1u) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFFu; }

using Replace = absl::FunctionRef<void(std::string_view part, std::string_view made)>;

void ReplaceGrapheme(const Charsmap& charsmap, std::string_view grapheme, Replace replace) {
  if (grapheme.size() < kGraphemeBytes) {
    if (const auto match = charsmap.Shortest(grapheme)) {
      replace(grapheme, match->replacement);
      return;
    }
  }
  for (size_t at = 0; at < grapheme.size();) {
    const size_t begin = at;
    NextCodePoint(grapheme, &at);
    const std::string_view character = grapheme.substr(begin, at - begin);
    const auto match = charsmap.Shortest(character);
    replace(character, match ? match->replacement : character);
  }
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Parse(std::string_view blob) {
  uint32_t bytes = 0;
  if (blob.size() < sizeof(bytes)) return absl::InvalidArgumentError("has no size");
  std::memcpy(&bytes, blob.data(), sizeof(bytes));
  blob.remove_prefix(sizeof(bytes));
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > blob.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has an array of ", bytes, " bytes in ", blob.size()));
  }
  Charsmap charsmap;
  charsmap.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(charsmap.units_.data(), blob.data(), bytes);
  charsmap.replacements_ = std::string(blob.substr(bytes));
  if (!charsmap.replacements_.empty() && charsmap.replacements_.back() != '\0') {
    return absl::InvalidArgumentError("has a replacement without end");
  }
  return charsmap;
}

std::optional<Charsmap::Match> Charsmap::Longest(std::string_view text) const {
  return Walk(text, /*longest=*/true);
}

std::optional<Charsmap::Match> Charsmap::Shortest(std::string_view text) const {
  return Walk(text, /*longest=*/false);
}

std::optional<Charsmap::Match> Charsmap::Walk(std::string_view text, bool longest) const {
  std::optional<Match> found;
  if (units_.empty()) return found;
  uint32_t at = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size() || LabelOf(units_[at]) != byte) break;
    const bool leaf = HasLeaf(units_[at]);
    at ^= OffsetOf(units_[at]);
    if (!leaf) continue;
    if (at >= units_.size()) break;
    const uint32_t value = ValueOf(units_[at]);
    if (value >= replacements_.size()) break;
    found = Match{i + 1, std::string_view(replacements_.c_str() + value)};
    if (!longest) break;
  }
  return found;
}

absl::Status ReplaceGraphemes(const Charsmap& charsmap, std::string_view text, Replace replace) {
  WorkMemory memory;
  SLUICE_RETURN_IF_ERROR(memory.Hold(std::ssize(text) * kWideBytesOfByte));
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  const std::unique_ptr<icu::BreakIterator> graphemes(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
  SLUICE_CHECK(U_SUCCESS(error));
  graphemes->setText(wide);
  size_t begin = 0;
  int32_t wide_at = 0;
  size_t at = 0;
  for (int32_t end = graphemes->next(); end != icu::BreakIterator::DONE; end = graphemes->next()) {
    while (wide_at < end) wide_at += NextCodePoint(text, &at) > 0xFFFF ? 2 : 1;
    ReplaceGrapheme(charsmap, text.substr(begin, at - begin), replace);
    begin = at;
  }
  return absl::OkStatus();
}

}  // namespace sluice::tokenize
