// The `decoder` of a tokenizer.json.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json_reader.h"

namespace sluice::tokenize {

// Supports ByteLevel, Metaspace, WordPiece, BPEDecoder, ByteFallback, Fuse, Strip, Replace and
// Sequences of these.
class Decoder {
 public:
  // Works as Normalizer::Parse. If there is no decoder, tokens are joined by spaces.
  static absl::StatusOr<Decoder> Parse(const nlohmann::json* object);

  // Joins the texts of tokens to one text. Bytes that are not UTF-8 become U+FFFD, or stay if
  // `keep_bytes`.
  std::string Apply(std::vector<std::string> tokens, bool keep_bytes) const;

  // Returns the most bytes that the steps Replace make of the bytes of a token.
  int64_t MostBytes(int64_t bytes) const;

 private:
  using Transform = std::function<void(std::vector<std::string>* tokens, bool keep_bytes)>;
  struct Growth {
    int64_t match;  // the fewest bytes of a match
    int64_t content;
  };

  void AddReplace(ObjectReader& fields);

  bool spaces_ = false;
  std::vector<Growth> growths_;  // of the steps Replace
  std::vector<Transform> transforms_;
};

}  // namespace sluice::tokenize
