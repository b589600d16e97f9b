// From a piece of text to tokens. Each takes time that grows as n log n with the piece.
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
  // Appends the tokens of `piece`, which is UTF-8 and not empty. FailedPrecondition where the piece is
  // not in the vocabulary, which has no token for what is unknown.
  virtual absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

// The `model` of a tokenizer.json: BPE, WordPiece, Unigram or WordLevel. Errors name the field; so does
// the refusal of another type, or of what makes encoding random.
absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseSubwordModel(const nlohmann::json* object);

// One of them each, by the fields of that object; nullptr after an error.
std::unique_ptr<const SubwordModel> ReadBpe(ObjectReader& fields);
std::unique_ptr<const SubwordModel> ReadWordPiece(ObjectReader& fields);
std::unique_ptr<const SubwordModel> ReadWordLevel(ObjectReader& fields);
std::unique_ptr<const SubwordModel> ReadUnigram(ObjectReader& fields);

// Both formats have an unknown character cost this much more than the least probable piece.
inline constexpr double kUnknownPenalty = 10.0;

// The most probable segmentation under independent pieces (Kudo, arXiv 1804.10959).
struct UnigramPieces {
  Vocabulary vocabulary;
  std::vector<double> scores;   // by id: logarithms of probabilities
  std::vector<bool> segmented;  // by id: may be found in a text
  double unknown_score = 0;     // of a character that no piece begins at
  int32_t unknown = kNoToken;
  bool byte_fallback = false;     // tokens of bytes instead of the unknown
  bool single_precision = false;  // sums, as SentencePiece has them
};
std::unique_ptr<const SubwordModel> MakeUnigram(UnigramPieces pieces);

// SentencePiece's way of BPE: of neighbours that together are a piece, those with the highest score merge
// first.
struct ScoredPieces {
  Vocabulary vocabulary;
  std::vector<double> scores;    // by id
  std::vector<bool> merged;      // by id: may come out of a merge
  std::vector<int32_t> unsplit;  // found in a text before all else, and never merged
  int32_t unknown = kNoToken;
  bool byte_fallback = false;
};
std::unique_ptr<const SubwordModel> MakeScoredBpe(ScoredPieces pieces);

}  // namespace sluice::tokenize
