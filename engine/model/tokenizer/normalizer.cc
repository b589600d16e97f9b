#include "engine/model/tokenizer/normalizer.h"

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/charsmap.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

using NormalizeTransform = std::function<absl::StatusOr<std::string>(std::string_view text)>;

constexpr size_t kMaxCharsmapBytes = size_t{8} << 20;

NormalizeTransform MakeForm(NormalForm form) {
  return [form](std::string_view text) { return Normalize(text, form); };
}

std::string Without(std::string_view text, bool (*dropped)(char32_t)) {
  std::string kept;
  kept.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!dropped(NextCodePoint(text, &at))) kept += text.substr(begin, at - begin);
  }
  return kept;
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

NormalizeTransform MakeReplace(ObjectReader& fields) {
  std::shared_ptr<const Pattern> pattern = ReadPattern("pattern", fields);
  std::string content = fields.String("content", kMaxAffixBytes);
  return [pattern, content](std::string_view text) -> absl::StatusOr<std::string> {
    SLUICE_ASSIGN_OR_RETURN(auto spans, pattern->Find(text));
    // The library replaces an empty match at the beginning of a text twice.
    if (!text.empty() && spans.front().match && spans.front().end == 0) {
      spans.insert(spans.begin(), spans.front());
    }
    return Replace(text, spans, content);
  };
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
  return [shared](std::string_view text) { return ReplaceGraphemes(*shared, text); };
}

struct Bert {
  bool clean_text, ideographs, strip_accents, lowercase;

  std::string Apply(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) AddCharacter(NextCodePoint(text, &at), &out);
    if (strip_accents) out = Without(Normalize(out, NormalForm::kD), IsNonspacingMark);
    return lowercase ? ToLower(out) : out;
  }

 private:
  void AddCharacter(char32_t point, std::string* out) const {
    if (clean_text && (point == 0 || point == 0xFFFD || IsControl(point))) return;
    if (clean_text && IsSpace(point)) point = ' ';
    const bool spaced = ideographs && IsIdeograph(point);
    if (spaced) out->push_back(' ');
    AppendUtf8(point, out);
    if (spaced) out->push_back(' ');
  }
};

NormalizeTransform MakeBert(ObjectReader& fields) {
  Bert bert{};
  bert.clean_text = fields.Boolean("clean_text", true);
  bert.ideographs = fields.Boolean("handle_chinese_chars", true);
  bert.lowercase = fields.Boolean("lowercase", true);
  bert.strip_accents = fields.Boolean("strip_accents", bert.lowercase);
  return [bert](std::string_view text) { return bert.Apply(text); };
}

NormalizeTransform MakePrepend(ObjectReader& fields) {
  const std::string prefix = fields.String("prepend", kMaxAffixBytes);
  return [prefix](std::string_view text) {
    return text.empty() ? std::string()
                        : absl::StrCat(prefix, absl::string_view(text.data(), text.size()));
  };
}

NormalizeTransform MakeStrip(ObjectReader& fields) {
  const bool left = fields.Boolean("strip_left", true);
  const bool right = fields.Boolean("strip_right", true);
  return [left, right](std::string_view text) { return std::string(Trimmed(text, left, right)); };
}

NormalizeTransform MakeNormalizeTransform(const std::string& type, ObjectReader& fields) {
  if (type == "NFC") return MakeForm(NormalForm::kC);
  if (type == "NFD") return MakeForm(NormalForm::kD);
  if (type == "NFKC") return MakeForm(NormalForm::kKC);
  if (type == "NFKD") return MakeForm(NormalForm::kKD);
  if (type == "Lowercase") return ToLower;
  if (type == "StripAccents") return [](std::string_view text) { return Without(text, IsMark); };
  if (type == "Strip") return MakeStrip(fields);
  if (type == "Replace") return MakeReplace(fields);
  if (type == "Prepend") return MakePrepend(fields);
  if (type == "BertNormalizer") return MakeBert(fields);
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
        normalizer.transforms_.push_back(MakeNormalizeTransform(type, fields));
      },
      &status);
  SLUICE_RETURN_IF_ERROR(status);
  return normalizer;
}

absl::StatusOr<std::string> Normalizer::Apply(std::string_view text) const {
  std::string normal(text);
  for (const NormalizeTransform& transform : transforms_) {
    SLUICE_ASSIGN_OR_RETURN(normal, transform(normal));
  }
  return normal;
}

}  // namespace sluice::tokenize
