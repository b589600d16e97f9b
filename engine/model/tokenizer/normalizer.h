// The `normalizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::tokenize {

// NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer, Precompiled
// and Sequences of them. Takes and gives UTF-8.
class Normalizer {
 public:
  // `object` may be nullptr: nothing is changed. Errors name the field; so does the refusal of another
  // type.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json* object);

  absl::StatusOr<std::string> Apply(std::string_view text) const;

 private:
  using Step = std::function<absl::StatusOr<std::string>(std::string_view text)>;

  std::vector<Step> steps_;
};

}  // namespace sluice::tokenize
