// The `normalizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::tokenize {

// Supports NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer,
// Precompiled and Sequences of these. Takes and returns UTF-8.
class Normalizer {
 public:
  // Makes a normalizer that changes nothing if `object` is nullptr. Errors, such as an unsupported
  // type, name the field.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json* object);

  absl::StatusOr<std::string> Apply(std::string_view text) const;

 private:
  using Transform = std::function<absl::StatusOr<std::string>(std::string_view text)>;

  std::vector<Transform> transforms_;
};

}  // namespace sluice::tokenize
