// The `pre_tokenizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::tokenize {

// A part of a text that is encoded separately.
struct Piece {
  std::string text;    // UTF-8
  bool first = false;  // whether it begins the text
};

// Supports ByteLevel, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, Split, Punctuation,
// Digits and Sequences of these.
class PreTokenizer {
 public:
  // Works as Normalizer::Parse.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json* object);

  absl::Status Apply(std::vector<Piece>* pieces) const;

 private:
  // Splits one piece into many.
  using Transform = std::function<absl::Status(const Piece& piece, std::vector<Piece>* out)>;

  std::vector<Transform> transforms_;
};

}  // namespace sluice::tokenize
