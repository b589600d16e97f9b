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

using NormalizeTransform = std::function<absl::Status(std::string_view text, TextBuilder* out)>;

constexpr size_t kMaxCharsmapBytes = size_t{8} << 20;

NormalizeTransform MakeForm(NormalForm form) {
  return [form](std::string_view text, TextBuilder* out) {
    Normalize(text, form, out);
    return absl::OkStatus();
  };
}

NormalizeTransform MakeFilter(bool (*dropped)(char32_t)) {
  return [dropped](std::string_view text, TextBuilder* out) {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      if (!dropped(NextCodePoint(text, &at))) out->Append(text.substr(begin, at - begin));
    }
    return absl::OkStatus();
  };
}

NormalizeTransform MakeLower() {
  return [](std::string_view text, TextBuilder* out) {
    ToLower(text, out);
    return absl::OkStatus();
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

NormalizeTransform MakeReplace(ObjectReader& fields) {
  std::shared_ptr<const Pattern> pattern = ReadPattern("pattern", fields);
  std::string content = fields.String("content", kMaxAffixBytes);
  return [pattern, content](std::string_view text, TextBuilder* out) {
    return pattern->Find(text, [&](const Span& span) {
      const std::string_view part = text.substr(span.begin, span.end - span.begin);
      out->Append(span.match ? content : part);
      // The library replaces an empty match at the beginning of a text twice.
      if (span.match && span.end == 0 && !text.empty()) out->Append(content);
      return absl::OkStatus();
    });
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
  return [shared](std::string_view text, TextBuilder* out) {
    return ReplaceGraphemes(*shared, text, out);
  };
}

struct Bert {
  bool clean_text, ideographs;

  void Clean(std::string_view text, TextBuilder* out) const {
    for (size_t at = 0; at < text.size();) AddCharacter(NextCodePoint(text, &at), out);
  }

 private:
  void AddCharacter(char32_t point, TextBuilder* out) const {
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
  transforms->push_back([bert](std::string_view text, TextBuilder* out) {
    bert.Clean(text, out);
    return absl::OkStatus();
  });
  if (strip_accents) {
    transforms->push_back(MakeForm(NormalForm::kD));
    transforms->push_back(MakeFilter(IsNonspacingMark));
  }
  if (lowercase) transforms->push_back(MakeLower());
}

NormalizeTransform MakePrepend(ObjectReader& fields) {
  const std::string prefix = fields.String("prepend", kMaxAffixBytes);
  return [prefix](std::string_view text, TextBuilder* out) {
    if (text.empty()) return absl::OkStatus();
    out->Append(prefix);
    out->Append(text);
    return absl::OkStatus();
  };
}

NormalizeTransform MakeStrip(ObjectReader& fields) {
  const bool left = fields.Boolean("strip_left", true);
  const bool right = fields.Boolean("strip_right", true);
  return [left, right](std::string_view text, TextBuilder* out) {
    out->Append(Trimmed(text, left, right));
    return absl::OkStatus();
  };
}

NormalizeTransform MakeNormalizeTransform(const std::string& type, ObjectReader& fields) {
  if (type == "NFC") return MakeForm(NormalForm::kC);
  if (type == "NFD") return MakeForm(NormalForm::kD);
  if (type == "NFKC") return MakeForm(NormalForm::kKC);
  if (type == "NFKD") return MakeForm(NormalForm::kKD);
  if (type == "Lowercase") return MakeLower();
  if (type == "StripAccents") return MakeFilter(IsMark);
  if (type == "Strip") return MakeStrip(fields);
  if (type == "Replace") return MakeReplace(fields);
  if (type == "Prepend") return MakePrepend(fields);
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

absl::StatusOr<OwnedText> Normalizer::Apply(std::string_view text, size_t most) const {
  TextBuilder whole(text.size(), most);
  whole.Append(text);
  SLUICE_ASSIGN_OR_RETURN(OwnedText normal, std::move(whole).Finish());
  for (const Transform& transform : transforms_) {
    TextBuilder out(normal.text.size(), most);
    SLUICE_RETURN_IF_ERROR(transform(normal.text, &out));
    SLUICE_ASSIGN_OR_RETURN(normal, std::move(out).Finish());
  }
  return normal;
}

}  // namespace sluice::tokenize
