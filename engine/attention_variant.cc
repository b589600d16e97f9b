#include "engine/attention_variant.h"

#include <charconv>

#include "absl/strings/str_cat.h"

namespace sluice {

std::string AttentionVariantName(const AttentionVariant& variant) {
  const std::string name(NameOf(variant.kind));
  if (variant.kind != AttentionVariant::Kind::kSplit) return name;
  return variant.parts == 0 ? name + ":auto" : absl::StrCat(name, ":", variant.parts);
}

std::optional<AttentionVariant> ParseAttentionVariant(std::string_view text) {
  using Kind = AttentionVariant::Kind;
  const size_t colon = text.find(':');
  const std::optional<Kind> kind = EnumOf<Kind>(text.substr(0, colon));
  if (!kind.has_value() || (*kind == Kind::kSplit) != (colon != text.npos)) return std::nullopt;
  AttentionVariant variant{.kind = *kind};
  if (colon == text.npos) return variant;
  const std::string_view parts = text.substr(colon + 1);
  if (parts == "auto") return variant;
  const auto [end, error] =
      std::from_chars(parts.data(), parts.data() + parts.size(), variant.parts);
  const bool whole = error == std::errc() && end == parts.data() + parts.size();
  if (!whole || variant.parts < 2 || variant.parts > AttentionVariant::kMaxParts) {
    return std::nullopt;
  }
  return variant;
}

}  // namespace sluice
