// The `decoder` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::tokenize {

// ByteLevel, Metaspace, WordPiece, BPEDecoder, ByteFallback, Fuse, Strip, Replace and Sequences of them.
class Decoder {
 public:
  // As Normalizer::Parse; without one, tokens are joined by spaces.
  static absl::StatusOr<Decoder> Parse(const nlohmann::json* object);

  // The texts of tokens to one text. Bytes that are no UTF-8 become U+FFFD, or stay where `keep_bytes`.
  std::string Apply(std::vector<std::string> tokens, bool keep_bytes) const;

 private:
  using Step = std::function<void(std::vector<std::string>* tokens, bool keep_bytes)>;

  bool spaces_ = false;
  std::vector<Step> steps_;
};

}  // namespace sluice::tokenize
