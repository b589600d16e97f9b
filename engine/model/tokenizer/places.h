// The places of tokens in their source text.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/tokenizer/pre_tokenizer.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/tokenizer.h"
#include "engine/model/tokenizer/traced_text.h"

namespace sluice::tokenize {

// Returns the range of `text`, which begins at byte `begin`, without white space around it.
ByteRange TrimmedRange(std::string_view text, size_t begin);
// These change the last `count` ranges: add `bytes` to known ranges, or make them unknown.
void Shift(std::vector<ByteRange>* ranges, size_t count, size_t bytes);
void Forget(std::vector<ByteRange>* ranges, size_t count);

// Returns the bytes of the original text, `text`, that the bytes [from, to) of `normal` come from,
// without white space around them. They are unknown if `normal` is not traced.
ByteRange RangeOf(std::string_view text, const TracedText& normal, size_t from, size_t to);

// Finds the bytes of the normalised text that the tokens of a piece stand for. Takes linear time
// for all tokens of a piece in order.
class SourcePlaces {
 public:
  // `piece` outlives this object.
  explicit SourcePlaces(const PreToken* piece) : piece_(*piece) {}
  // Returns an empty range if the origin of the piece is unknown. No place begins before that of an
  // earlier call.
  std::pair<size_t, size_t> Of(SubwordModel::Place place);

 private:
  const PreToken& piece_;
  // The last character that began at the beginning of a place: its byte in the piece, and the bytes
  // of the normalised text before it.
  size_t known_ = 0;
  size_t before_known_ = 0;
};

}  // namespace sluice::tokenize
