// The places of tokens in their source text.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/work_memory.h"
#include "engine/model/tokenizer/normalizer.h"
#include "engine/model/tokenizer/pre_tokenizer.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice::tokenize {

// Returns the range of `text`, which begins at byte `begin`, without white space around it.
ByteRange TrimmedRange(std::string_view text, size_t begin);
// These change the last `count` ranges: add `bytes` to known ranges, or make them unknown.
void Shift(std::vector<ByteRange>* ranges, size_t count, size_t bytes);
void Forget(std::vector<ByteRange>* ranges, size_t count);

// Maps bytes of a normalised text to bytes of the original text. The text is divided into code
// points or, if that fails, into code points with the marks that follow each. If the parts,
// normalised one by one, together equal the normalised text, each byte of it comes from one part.
// Otherwise the places are unknown.
class PlaceMap {
 public:
  // `text` outlives it. Returns the errors of the normalizer.
  static absl::StatusOr<PlaceMap> Make(std::string_view text, std::string_view normal,
                                       const Normalizer& normalizer);
  // Returns the range of the parts that became the bytes [from, to).
  ByteRange Of(size_t from, size_t to) const;

 private:
  explicit PlaceMap(std::string_view text) : text_(text) {}
  // Fills starts_, or leaves it empty if the parts do not make the normalised text.
  absl::Status Cut(std::string_view normal, const Normalizer& normalizer, bool with_marks);

  std::string_view text_;
  WorkMemory memory_;
  // By part: the first byte, in the text and in the normalised text; then their ends. Empty if the
  // places are unknown.
  std::vector<std::pair<size_t, size_t>> starts_;
};

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
