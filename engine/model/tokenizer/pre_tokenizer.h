// The `pre_tokenizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::tokenize {

// A part of a text that is encoded by itself.
struct Piece {
  std::string text;    // UTF-8
  bool first = false;  // with it the text begins
};

// ByteLevel, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, Split, Punctuation, Digits and
// Sequences of them.
class PreTokenizer {
 public:
  // As Normalizer::Parse.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json* object);

  absl::Status Apply(std::vector<Piece>* pieces) const;

 private:
  // One piece to many.
  using Step = std::function<absl::Status(const Piece& piece, std::vector<Piece>* out)>;

  std::vector<Step> steps_;
};

}  // namespace sluice::tokenize
