// The `normalizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/traced_text.h"

namespace sluice::tokenize {

// Supports NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer,
// Nmt, ByteLevel, Precompiled and Sequences of these. Takes and returns UTF-8.
class Normalizer {
 public:
  // Makes a normalizer that changes nothing if `object` is nullptr. Errors, such as an unsupported
  // type, name the field.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json* object);

  // Changes a text, and keeps the sources of its bytes if it is traced.
  absl::StatusOr<TracedText> Apply(TracedText text) const;

 private:
  using Transform = std::function<absl::StatusOr<TracedText>(const TracedText& text)>;

  std::vector<Transform> transforms_;
};

}  // namespace sluice::tokenize
