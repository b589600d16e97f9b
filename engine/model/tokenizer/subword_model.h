// Encodes a piece of text as tokens. The time grows as n log n with the piece, or as n times the
// longest token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json_reader.h"
#include "engine/model/tokenizer/vocabulary.h"

namespace sluice::tokenize {

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // The bytes [begin, end) of a piece that a token stands for.
  struct Place {
    size_t begin, end;
  };
  // Appends the tokens of `piece`, which is UTF-8 and not empty, and the place of each one to
  // `places`, unless it is nullptr. Tokens that stand for the bytes of a character have a place in
  // the character. Returns FailedPrecondition if the piece is not in the vocabulary and there is
  // no unknown token.
  virtual absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids,
                              std::vector<Place>* places) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  // Returns whether one token may stand for any number of unknown characters.
  virtual bool joins_unknown() const = 0;
};

// Appends a place for each token from index `first` on, unless `places` is nullptr.
void AppendPlaces(const std::vector<int32_t>& ids, size_t first, SubwordModel::Place place,
                  std::vector<SubwordModel::Place>* places);

// Returns the most bytes of text that a token of the model stands for. A token that joins unknown
// characters counts as 256 bytes, unless the vocabulary has a longer token.
int64_t LongestTokenBytes(const SubwordModel& model);

// Reads the `model` of a tokenizer.json: BPE, WordPiece, Unigram or WordLevel. Errors, such as an
// unsupported type or a setting that makes encoding random, name the field.
absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseSubwordModel(const nlohmann::json* object);

// Each of these reads one of them from the fields of that object; returns nullptr after an error.
std::unique_ptr<const SubwordModel> ReadBpe(ObjectReader& fields);
std::unique_ptr<const SubwordModel> ReadWordPiece(ObjectReader& fields);
std::unique_ptr<const SubwordModel> ReadWordLevel(ObjectReader& fields);
std::unique_ptr<const SubwordModel> ReadUnigram(ObjectReader& fields);

// In both formats an unknown character costs this much more than the least probable piece.
inline constexpr double kUnknownPenalty = 10.0;

// Finds the most probable segmentation under independent pieces (Kudo, arXiv 1804.10959).
struct UnigramPieces {
  Vocabulary vocabulary;
  std::vector<double> scores;   // by id: logarithms of probabilities
  std::vector<bool> segmented;  // by id: whether it may be found in a text
  double unknown_score = 0;     // of a character that begins no piece
  int32_t unknown = kNoToken;
  bool byte_fallback = false;     // tokens of bytes instead of the unknown one
  bool single_precision = false;  // whether sums are rounded, as in SentencePiece
};
std::unique_ptr<const SubwordModel> MakeUnigram(UnigramPieces pieces);

// The BPE of SentencePiece: of the neighbours that form a piece, the pair with the highest score
// merges first.
struct ScoredPieces {
  Vocabulary vocabulary;
  std::vector<double> scores;    // by id
  std::vector<bool> merged;      // by id: whether a merge may give it
  std::vector<int32_t> unsplit;  // found in a text first, and never merged
  int32_t unknown = kNoToken;
  bool byte_fallback = false;
};
std::unique_ptr<const SubwordModel> MakeScoredBpe(ScoredPieces pieces);

}  // namespace sluice::tokenize
