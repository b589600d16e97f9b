#include "engine/model/tokenizer/normalizer.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/byte_level.h"
#include "engine/model/tokenizer/charsmap.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

using NormalizeTransform = std::function<absl::StatusOr<TracedText>(const TracedText& text)>;

constexpr size_t kMaxCharsmapBytes = size_t{8} << 20;

NormalizeTransform MakeForm(NormalForm form) {
  return [form](const TracedText& text) { return NormalizeTraced(text, form); };
}

NormalizeTransform MakeMap(void (*append)(char32_t point, TextBuilder* out)) {
  return [append](const TracedText& text) { return MapCharacters(text, append); };
}

NormalizeTransform MakeFilter(bool (*dropped)(char32_t)) {
  return [dropped](const TracedText& text) {
    return MapCharacters(text, [dropped](char32_t point, TextBuilder* out) {
      if (!dropped(point)) out->Append(point);
    });
  };
}

std::string_view Trimmed(std::string_view text, bool left, bool right) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    if (IsSpace(NextCodePoint(text, &at))) continue;
    begin = std::min(begin, here);
    end = at;
  }
  if (begin > end) return left || right ? std::string_view() : text;
  if (!left) begin = 0;
  if (!right) end = text.size();
  return text.substr(begin, end - begin);
}

// A replacement comes from the last character of the match, or from the one before an empty match.
NormalizeTransform MakeReplace(ObjectReader& fields) {
  std::shared_ptr<const Pattern> pattern = ReadPattern("pattern", fields);
  std::string content = fields.String("content", kMaxAffixBytes);
  return [pattern, content](const TracedText& before) -> absl::StatusOr<TracedText> {
    Rewriting made(before);
    SLUICE_RETURN_IF_ERROR(pattern->Find(before.text, [&](const Span& span) {
      if (!span.match) {
        made.Keep(span.begin, span.end);
        return absl::OkStatus();
      }
      made.text().Append(content);
      // The library replaces an empty match at the beginning of a text twice.
      if (span.end == 0 && !before.text.empty()) made.text().Append(content);
      made.From(span.end == 0 ? Rewriting::kNowhere : span.end - 1);
      return absl::OkStatus();
    }));
    return std::move(made).Finish();
  };
}

absl::StatusOr<TracedText> ReplaceByTable(const Charsmap& charsmap, const TracedText& before) {
  if (!before.traced) {
    Rewriting made(before);
    SLUICE_RETURN_IF_ERROR(ReplaceGraphemes(
        charsmap, before.text,
        [&](std::string_view, std::string_view content) { made.text().Append(content); }));
    return std::move(made).Finish();
  }
  Changes changes(before);
  SLUICE_RETURN_IF_ERROR(
      ReplaceGraphemes(charsmap, before.text, [&](std::string_view part, std::string_view content) {
        auto left = static_cast<int>(CountCodePoints(part));
        for (size_t at = 0; at < content.size(); --left) {
          changes.Add({NextCodePoint(content, &at), left > 0 ? 0 : 1});
        }
        // The last character replaces the rest of the part.
        if (left > 0) changes.WidenLast(left);
      }));
  return std::move(changes).Finish();
}

NormalizeTransform MakePrecompiled(ObjectReader& fields) {
  std::string blob;
  if (!absl::Base64Unescape(fields.String("precompiled_charsmap", kMaxCharsmapBytes), &blob)) {
    fields.Fail("precompiled_charsmap", "is not base64");
  }
  auto charsmap = Charsmap::Parse(blob);
  if (!charsmap.ok()) {
    fields.Fail("precompiled_charsmap", std::string(charsmap.status().message()));
    return nullptr;
  }
  auto shared = std::make_shared<const Charsmap>(*std::move(charsmap));
  return [shared](const TracedText& text) { return ReplaceByTable(*shared, text); };
}

struct Bert {
  bool clean_text, ideographs;

  void operator()(char32_t point, TextBuilder* out) const {
    if (clean_text && (point == 0 || point == 0xFFFD || IsControl(point))) return;
    if (clean_text && IsSpace(point)) point = ' ';
    const bool spaced = ideographs && IsIdeograph(point);
    if (spaced) out->Append(" ");
    out->Append(point);
    if (spaced) out->Append(" ");
  }
};

void MakeBert(ObjectReader& fields, std::vector<NormalizeTransform>* transforms) {
  Bert bert{};
  bert.clean_text = fields.Boolean("clean_text", true);
  bert.ideographs = fields.Boolean("handle_chinese_chars", true);
  const bool lowercase = fields.Boolean("lowercase", true);
  const bool strip_accents = fields.Boolean("strip_accents", lowercase);
  transforms->push_back([bert](const TracedText& text) { return MapCharacters(text, bert); });
  if (strip_accents) {
    transforms->push_back(MakeForm(NormalForm::kD));
    transforms->push_back(MakeFilter(IsNonspacingMark));
  }
  if (lowercase) transforms->push_back(MakeMap(AppendLower));
}

NormalizeTransform MakePrepend(ObjectReader& fields) {
  const std::string prefix = fields.String("prepend", kMaxAffixBytes);
  return [prefix](const TracedText& before) {
    Rewriting made(before);
    if (!before.text.empty()) made.text().Append(prefix);
    made.From(Rewriting::kNowhere);
    made.Keep(0, before.text.size());
    return std::move(made).Finish();
  };
}

NormalizeTransform MakeStrip(ObjectReader& fields) {
  const bool left = fields.Boolean("strip_left", true);
  const bool right = fields.Boolean("strip_right", true);
  return [left, right](const TracedText& before) {
    const std::string_view kept = Trimmed(before.text, left, right);
    const size_t begin = kept.empty() ? 0 : kept.data() - before.text.data();
    Rewriting made(before);
    made.Keep(begin, begin + kept.size());
    return std::move(made).Finish();
  };
}

// Removes control characters, and makes other separators a space, as SentencePiece does for
// translation models.
void AppendNmt(char32_t point, TextBuilder* out) {
  const bool dropped = (point >= 0x01 && point <= 0x08) || point == 0x0B ||
                       (point >= 0x0E && point <= 0x1F) || point == 0x7F || point == 0x8F ||
                       point == 0x9F;
  if (dropped) return;
  constexpr char32_t kSpaces[] = {'\t',   '\n',   '\f',   '\r',   0x1680,
                                  0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD};
  const bool space = (point >= 0x200B && point <= 0x200F) ||
                     std::ranges::find(kSpaces, point) != std::end(kSpaces);
  out->Append(space ? U' ' : point);
}

// Each byte of a character becomes a character.
void AppendBytes(char32_t point, TextBuilder* out) {
  std::string bytes;
  AppendUtf8(point, &bytes);
  out->Append(BytesToCharacters(bytes));
}

NormalizeTransform MakeNormalizeTransform(const std::string& type, ObjectReader& fields) {
  if (type == "NFC") return MakeForm(NormalForm::kC);
  if (type == "NFD") return MakeForm(NormalForm::kD);
  if (type == "NFKC") return MakeForm(NormalForm::kKC);
  if (type == "NFKD") return MakeForm(NormalForm::kKD);
  if (type == "Lowercase") return MakeMap(AppendLower);
  if (type == "StripAccents") return MakeFilter(IsMark);
  if (type == "Strip") return MakeStrip(fields);
  if (type == "Replace") return MakeReplace(fields);
  if (type == "Prepend") return MakePrepend(fields);
  if (type == "Nmt") return MakeMap(AppendNmt);
  if (type == "ByteLevel") return MakeMap(AppendBytes);
  if (type == "Precompiled") return MakePrecompiled(fields);
  fields.Fail("type", absl::StrCat("\"", absl::CEscape(type), "\" is not supported"));
  return nullptr;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::Parse(const nlohmann::json* object) {
  absl::Status status;
  Normalizer normalizer;
  VisitMembers(
      object, "normalizer", "normalizers",
      [&](const std::string& type, ObjectReader& fields) {
        if (type == "BertNormalizer") return MakeBert(fields, &normalizer.transforms_);
        normalizer.transforms_.push_back(MakeNormalizeTransform(type, fields));
      },
      &status);
  SLUICE_RETURN_IF_ERROR(status);
  return normalizer;
}

absl::StatusOr<TracedText> Normalizer::Apply(TracedText text) const {
  for (const Transform& transform : transforms_) {
    SLUICE_ASSIGN_OR_RETURN(text, transform(text));
  }
  return text;
}

}  // namespace sluice::tokenize
