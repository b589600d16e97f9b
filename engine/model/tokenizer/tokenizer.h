// Text to token ids and back.
#pragma once

#include <cstdint>
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
  // With the special tokens around it that the model's files ask for, a bos token first for one. Bytes
  // that are no UTF-8 are U+FFFD to all but the byte tokenizer. Errors, of a vocabulary that has no token
  // for a part of the text or an expression that takes too long, tell the caller what is wrong with it.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const = 0;
  // Special tokens, and ids that are none, decode to nothing.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // As Decode, but bytes that are no UTF-8 stay as they are: tokens to come may make them a character.
  virtual std::string DecodeBytes(std::span<const int32_t> ids) const { return Decode(ids); }
  // Are its texts UTF-8? Then a stream shows U+FFFD for bytes that no token has made a character.
  virtual bool TextIsUtf8() const { return false; }
};

// Id = byte value; ids from 256 on are special. `bos` < 0: none.
std::unique_ptr<const Tokenizer> MakeByteTokenizer(int32_t bos);

}  // namespace sluice
