// The `normalizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/tokenizer/text_builder.h"

namespace sluice::tokenize {

// Supports NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer,
// Precompiled and Sequences of these. Takes and returns UTF-8.
class Normalizer {
 public:
  // Makes a normalizer that changes nothing if `object` is nullptr. Errors, such as an unsupported
  // type, name the field.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json* object);

  // No result of a step may have more than `most` bytes.
  absl::StatusOr<OwnedText> Apply(std::string_view text, size_t most = kMaxTextBytes) const;

 private:
  // Appends the changed text.
  using Transform = std::function<absl::Status(std::string_view text, TextBuilder* out)>;

  std::vector<Transform> transforms_;
};

}  // namespace sluice::tokenize
