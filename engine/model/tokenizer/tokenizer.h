// Converts text to token ids and back.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Encodes a text, with the special tokens around it that the files of the model ask for, such as
  // bos. Bytes that are not UTF-8 count as U+FFFD, except in the byte tokenizer. Errors are for the
  // caller: the vocabulary has no token for a part of the text, or an expression takes too long.
  // Encoding stops soon after there are more than `most` tokens; the tokens are then those that the
  // whole text begins with, or a few less, and at least `most` + 1. Ends with the error of
  // CheckInterruption (base/interruption.h).
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                                      int64_t most) const = 0;
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const {
    return Encode(text, std::numeric_limits<int64_t>::max());
  }
  // Returns the most bytes of text that a token stands for. A token for unknown characters may
  // stand for more of them.
  virtual int64_t longest_token_bytes() const = 0;
  // Decodes tokens. Special tokens, and ids without a token, decode to nothing.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // Works as Decode, but leaves bytes that are not UTF-8 unchanged: later tokens may complete them
  // to a character.
  virtual std::string DecodeBytes(std::span<const int32_t> ids) const { return Decode(ids); }
  // Returns whether decoded texts are UTF-8. Then a stream shows U+FFFD for bytes that no token has
  // completed to a character.
  virtual bool TextIsUtf8() const { return false; }
};

// Makes a tokenizer whose ids are byte values; ids from 256 on are special. `bos` < 0 means none.
std::unique_ptr<const Tokenizer> MakeByteTokenizer(int32_t bos);

}  // namespace sluice
