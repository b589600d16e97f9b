#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

// Appends a token for the whole piece, or returns an error if there is no token.
absl::Status AppendWhole(int32_t id, std::string_view piece, std::vector<int32_t>* ids,
                         std::vector<SubwordModel::Place>* places) {
  if (id == kNoToken) {
    return absl::FailedPreconditionError("the tokenizer has no token for one of its words");
  }
  ids->push_back(id);
  AppendPlaces(*ids, ids->size() - 1, {0, piece.size()}, places);
  return absl::OkStatus();
}

class WordPiece final : public SubwordModel {
 public:
  WordPiece(Vocabulary vocabulary, std::string prefix, int32_t unknown, int64_t max_characters)
      : vocabulary_(std::move(vocabulary)),
        prefix_(std::move(prefix)),
        unknown_(unknown),
        max_characters_(max_characters) {}

  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids,
                      std::vector<Place>* places) const override {
    const size_t size = ids->size();
    bool known = CountCodePoints(piece) <= max_characters_;
    for (size_t at = 0; known && at < piece.size();) {
      const size_t bytes = AppendLongest(piece.substr(at), at > 0, ids);
      known = bytes > 0;
      if (known) AppendPlaces(*ids, ids->size() - 1, {at, at + bytes}, places);
      at += bytes;
    }
    if (known) return absl::OkStatus();
    if (places != nullptr) places->resize(places->size() - (ids->size() - size));
    ids->resize(size);
    return AppendWhole(unknown_, piece, ids, places);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool joins_unknown() const override { return true; }

 private:
  // Appends the longest token that begins `rest` and returns its length, or 0 if there is none.
  size_t AppendLongest(std::string_view rest, bool inside, std::vector<int32_t>* ids) const {
    std::string token = inside ? prefix_ : std::string();
    const size_t before = token.size();
    token += rest.substr(0, std::min(rest.size(), vocabulary_.longest_bytes()));
    for (; token.size() > before; token.pop_back()) {
      const int32_t id = vocabulary_.IdOf(token);
      if (id == kNoToken) continue;
      ids->push_back(id);
      return token.size() - before;
    }
    return 0;
  }

  Vocabulary vocabulary_;
  std::string prefix_;
  int32_t unknown_;
  size_t max_characters_;
};

class WordLevel final : public SubwordModel {
 public:
  WordLevel(Vocabulary vocabulary, int32_t unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}

  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids,
                      std::vector<Place>* places) const override {
    const int32_t id = vocabulary_.IdOf(piece);
    return AppendWhole(id == kNoToken ? unknown_ : id, piece, ids, places);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool joins_unknown() const override { return true; }

 private:
  Vocabulary vocabulary_;
  int32_t unknown_;
};

Vocabulary ReadVocabulary(ObjectReader& fields) {
  auto vocabulary = Vocabulary::Parse(fields.Find("vocab"), "vocab");
  if (vocabulary.ok()) return *std::move(vocabulary);
  fields.Fail("vocab", absl::StrCat("is refused: ", vocabulary.status().message()));
  return Vocabulary();
}

}  // namespace

std::unique_ptr<const SubwordModel> ReadWordPiece(ObjectReader& fields) {
  Vocabulary vocabulary = ReadVocabulary(fields);
  const std::string prefix = fields.String("continuing_subword_prefix", kMaxAffixBytes, "##");
  const int32_t unknown = vocabulary.IdOf(fields.String("unk_token", kMaxTokenBytes, "[UNK]"));
  const int64_t most =
      fields.Integer("max_input_chars_per_word", 0, std::numeric_limits<int32_t>::max(), 100);
  return std::make_unique<WordPiece>(std::move(vocabulary), prefix, unknown, most);
}

std::unique_ptr<const SubwordModel> ReadWordLevel(ObjectReader& fields) {
  Vocabulary vocabulary = ReadVocabulary(fields);
  const int32_t unknown = vocabulary.IdOf(fields.String("unk_token", kMaxTokenBytes, "<unk>"));
  return std::make_unique<WordLevel>(std::move(vocabulary), unknown);
}

}  // namespace sluice::tokenize
