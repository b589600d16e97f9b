// Converts text to token ids and back.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/text_template.h"

namespace sluice {

// The bytes of a text that a token stands for; -1 and -1 if it stands for none, or if they are
// unknown.
struct ByteRange {
  int32_t begin = -1;
  int32_t end = -1;
};

class Tokenizer {
 public:
  explicit Tokenizer(TextTemplates templates = {}) : templates_(std::move(templates)) {}
  virtual ~Tokenizer() = default;
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  // Encodes a text, without tokens around it. Bytes that are not UTF-8 count as U+FFFD, except in
  // the byte tokenizer. Errors are for the caller: the vocabulary has no token for a part of the
  // text, or an expression takes too long. Encoding stops soon after there are more than `most`
  // tokens; the tokens are then those that the whole text begins with, or a few less, and at least
  // `most` + 1. Ends with the error of CheckInterruption (base/interruption.h).
  virtual absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view text,
                                                          int64_t most) const = 0;
  // Works as EncodeBare, and appends the bytes of each token, without white space around them. They
  // are unknown if the text is not UTF-8, or contains the mark of a pre-tokenizer Metaspace.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeLocated(std::string_view text, int64_t most,
                                                             std::vector<ByteRange>* ranges) const;
  // Returns the texts in which EncodeBare finds a special token.
  virtual std::vector<std::string> special_texts() const { return {}; }
  // Returns the id of the token with this text, or -1 if there is none or texts are unknown.
  virtual int32_t IdOf(std::string_view /*token*/) const { return -1; }
  // Returns the most bytes of text that a token stands for. A token for unknown characters may
  // stand for more of them.
  virtual int64_t longest_token_bytes() const = 0;
  // Returns the most bytes that a token decodes to, without a space before it.
  virtual int64_t longest_decoded_bytes() const { return longest_token_bytes(); }
  // Returns the special tokens, such as bos, that the files of the model add around texts.
  const TextTemplates& templates() const { return templates_; }
  // Encodes a text, with the tokens of its template around it. `most` does not count these.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, int64_t most = kNoLimit) const;
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
