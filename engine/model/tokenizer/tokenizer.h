// Converts text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/text_template.h"

namespace sluice {

// The bytes of a text that a token stands for; -1 and -1 if it stands for none, or if they are not
// known.
struct ByteRange {
  int32_t begin = -1;
  int32_t end = -1;
};

class Tokenizer {
 public:
  explicit Tokenizer(TextTemplates templates = {}) : templates_(std::move(templates)) {}
  virtual ~Tokenizer() = default;
  // Encodes a text, without tokens around it. Bytes that are not UTF-8 count as U+FFFD, except in
  // the byte tokenizer. Errors are for the caller: the vocabulary has no token for a part of the
  // text, or an expression takes too long.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view text) const = 0;
  // Works as EncodeBare, and appends the bytes of each token, without white space around them. They
  // are unknown where the normalisation of the text cannot be followed.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeLocated(std::string_view text,
                                                             std::vector<ByteRange>* ranges) const;
  // Returns the special tokens that the files of the model ask for around texts, such as bos.
  const TextTemplates& templates() const { return templates_; }
  // Encodes a text, with the tokens of its template around it.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const;
  // Decodes tokens. Special tokens, and ids without a token, decode to nothing.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // Works as Decode, but leaves bytes that are not UTF-8 unchanged: later tokens may complete them
  // to a character.
  virtual std::string DecodeBytes(std::span<const int32_t> ids) const { return Decode(ids); }
  // Returns whether decoded texts are UTF-8. Then a stream shows U+FFFD for bytes that no token has
  // completed to a character.
  virtual bool TextIsUtf8() const { return false; }

 private:
  TextTemplates templates_;
};

// Makes a tokenizer whose ids are byte values; ids from 256 on are special. `bos` < 0 means none.
std::unique_ptr<const Tokenizer> MakeByteTokenizer(int32_t bos);

}  // namespace sluice
