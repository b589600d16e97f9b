// The `pre_tokenizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::tokenize {

// A part of a text that is encoded separately.
struct PreToken {
  std::string text;    // UTF-8
  bool first = false;  // whether it begins the text
  // The origin of the piece, for the places of tokens: the byte of the normalised text where it
  // begins, the number of bytes that were added at its beginning, and the meaning of its bytes.
  size_t begin = 0;
  size_t inserted = 0;
  bool located = true;      // whether the origin is known
  std::string mark = {};    // if not empty, it stands for one byte, a space
  bool byte_level = false;  // each character stands for one byte
};

// Returns how many bytes of the normalised text the bytes [from, to) of a piece stand for.
size_t SourceBytes(const PreToken& piece, size_t from, size_t to);

// Supports ByteLevel, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, Split,
// CharDelimiterSplit, Punctuation, Digits, UnicodeScripts, FixedLength and Sequences of these.
class PreTokenizer {
 public:
  // Works as Normalizer::Parse.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json* object);

  // Calls `visit` for each piece of `whole`, in order; ends with the first error of a visit. The
  // pieces are made one by one: together they may take a hundred times the memory of the text.
  // `*left` is the number of bytes that the pieces of all steps may have; it is lowered by theirs,
  // and by one for each piece. Returns OutOfRange if they have more.
  using Visit = absl::FunctionRef<absl::Status(PreToken piece)>;
  absl::Status Apply(PreToken whole, size_t* left, Visit visit) const {
    return Run(0, std::move(whole), left, visit);
  }

 private:
  // Splits one piece into many.
  using Transform = std::function<absl::Status(PreToken piece, Visit visit)>;
  absl::Status Run(size_t step, PreToken piece, size_t* left, Visit visit) const;

  std::vector<Transform> transforms_;
};

}  // namespace sluice::tokenize
