#include "engine/model/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utf8.h>

#include "base/check.h"

namespace sluice::tokenize {
namespace {

constexpr char32_t kCapitalIWithDot = 0x130;  // the one letter whose lower case is two characters

UChar32 Icu(char32_t point) { return static_cast<UChar32>(point); }

bool IsIn(char32_t point, uint32_t categories) {
  return (U_GET_GC_MASK(Icu(point)) & categories) != 0;
}

const icu::Normalizer2* NormalizerOf(NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case NormalForm::kC:
      normalizer = icu::Normalizer2::getNFCInstance(error);
      break;
    case NormalForm::kD:
      normalizer = icu::Normalizer2::getNFDInstance(error);
      break;
    case NormalForm::kKC:
      normalizer = icu::Normalizer2::getNFKCInstance(error);
      break;
    case NormalForm::kKD:
      normalizer = icu::Normalizer2::getNFKDInstance(error);
      break;
  }
  SLUICE_CHECK(U_SUCCESS(error));
  return normalizer;
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t* at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  UChar32 point;
  U8_NEXT_OR_FFFD(bytes, *at, text.size(), point);
  return static_cast<char32_t>(point);
}

size_t ToUtf8(char32_t point, char* bytes) {
  static_assert(kMaxUtf8Bytes == U8_MAX_LENGTH);
  size_t size = 0;
  U8_APPEND_UNSAFE(reinterpret_cast<uint8_t*>(bytes), size, Icu(point));
  return size;
}

void AppendUtf8(char32_t point, std::string* text) {
  char bytes[kMaxUtf8Bytes];
  text->append(bytes, ToUtf8(point, bytes));
}

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) AppendUtf8(NextCodePoint(text, &at), &valid);
  return valid;
}

void AppendValidUtf8(std::string_view text, TextBuilder* valid) {
  for (size_t at = 0; at < text.size();) valid->Append(NextCodePoint(text, &at));
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) NextCodePoint(text, &at);
  return count;
}

bool IsSpace(char32_t point) { return u_isUWhiteSpace(Icu(point)) != 0; }

bool IsPunctuation(char32_t point) {
  return IsIn(point, U_GC_P_MASK) || (point < 0x80 && IsIn(point, U_GC_S_MASK));
}

bool IsLetter(char32_t point) { return IsIn(point, U_GC_L_MASK); }

bool IsNumeric(char32_t point) { return IsIn(point, U_GC_N_MASK); }

bool IsWord(char32_t point) {
  return u_hasBinaryProperty(Icu(point), UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(Icu(point), UCHAR_JOIN_CONTROL) != 0 ||
         IsIn(point, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK);
}

bool IsMark(char32_t point) { return IsIn(point, U_GC_M_MASK); }

bool IsNonspacingMark(char32_t point) { return IsIn(point, U_GC_MN_MASK); }

bool IsControl(char32_t point) {
  if (point == '\t' || point == '\n' || point == '\r') return false;
  return IsIn(point, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK);
}

std::optional<int> ScriptOf(char32_t point) {
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(Icu(point), &error);
  if (U_FAILURE(error) || script == USCRIPT_UNKNOWN) return std::nullopt;
  return script;
}

bool IsIdeograph(char32_t point) {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kRanges[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                               {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                               {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  for (const Range& range : kRanges) {
    if (point >= range.first && point <= range.last) return true;
  }
  return false;
}

void AppendLower(char32_t point, TextBuilder* text) {
  if (point == kCapitalIWithDot) {
    text->Append("i\xCC\x87");  // with the combining dot, U+0307
  } else {
    text->Append(static_cast<char32_t>(u_tolower(Icu(point))));
  }
}

std::string ToLowerText(std::string_view text) {
  std::string lower;
  icu::StringByteSink<std::string> sink(&lower);
  UErrorCode error = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  icu::CaseMap::utf8ToLower("", 0, piece, sink, nullptr, error);
  SLUICE_CHECK(U_SUCCESS(error));
  return lower;
}

int CombiningClass(char32_t point) { return u_getCombiningClass(Icu(point)); }

std::optional<char32_t> ComposedPair(char32_t first, char32_t second) {
  const UChar32 composed = NormalizerOf(NormalForm::kC)->composePair(Icu(first), Icu(second));
  if (composed < 0) return std::nullopt;
  return static_cast<char32_t>(composed);
}

bool BeginsPart(char32_t point, NormalForm form) {
  return NormalizerOf(form)->hasBoundaryBefore(Icu(point)) != 0;
}

void Normalize(std::string_view text, NormalForm form, TextBuilder* normal) {
  UErrorCode error = U_ZERO_ERROR;
  icu::StringByteSink<TextBuilder> sink(normal);
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  NormalizerOf(form)->normalizeUTF8(0, piece, sink, nullptr, error);
  SLUICE_CHECK(U_SUCCESS(error));
}

}  // namespace sluice::tokenize
