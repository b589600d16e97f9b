// The order in which attention reads the keys of a sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/enum_names.h"

namespace sluice {

// All variants give the same bits. Written as "auto", "one_pass", "two_pass", "split:N" and
// "split:auto".
struct AttentionVariant {
  enum class Kind {
    kAuto,     // the variant with the lowest estimate for the model and the device
    kOnePass,  // scores, weights and sums of a segment of keys, then the next segment
    kTwoPass,  // the scores of all keys, then all sums
    kSplit,    // one pass over each of several ranges of keys, which may run at once
  };
  Kind kind = Kind::kAuto;
  // The number of ranges; 0: enough ranges to keep the threads busy. A given number applies to
  // every sequence of a step; a sequence with fewer segments of keys has fewer ranges. A step is
  // not divided if its partial sums exceed their memory (docs/cascades.md). Each thread then has
  // more than two work items even without the division.
  int32_t parts = 0;

  static constexpr int32_t kMaxParts = 1024;

  bool operator==(const AttentionVariant&) const = default;
};
constexpr auto EnumNamesOf(AttentionVariant::Kind) {
  using enum AttentionVariant::Kind;
  return EnumNameTable<AttentionVariant::Kind>(
      {{kAuto, "auto"}, {kOnePass, "one_pass"}, {kTwoPass, "two_pass"}, {kSplit, "split"}});
}

std::string AttentionVariantName(const AttentionVariant& variant);

// Returns nullopt unless `text` names a variant. A given number of ranges must be in
// [2, kMaxParts].
std::optional<AttentionVariant> ParseAttentionVariant(std::string_view text);

}  // namespace sluice
