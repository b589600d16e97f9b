#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/trie.h"
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
  WordPiece(Vocabulary vocabulary, std::string_view prefix, int32_t unknown, int64_t max_characters)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown), max_characters_(max_characters) {
    for (int32_t id = 0; id < vocabulary_.end(); ++id) {
      std::string_view text = vocabulary_.TextOf(id);
      if (text.empty()) continue;
      beginnings_.Add(text, id);
      if (!text.starts_with(prefix) || text.size() == prefix.size()) continue;
      text.remove_prefix(prefix.size());
      continuations_.Add(text, id);
    }
  }

  absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids,
                      std::vector<Place>* places) const override {
    const size_t size = ids->size();
    bool known = CountCodePoints(piece) <= max_characters_;
    InterruptionCounter counter;
    for (size_t at = 0; known && at < piece.size();) {
      const Trie& tokens = at == 0 ? beginnings_ : continuations_;
      const Trie::Match longest = tokens.Longest(piece.substr(at));
      SLUICE_RETURN_IF_ERROR(counter.Check(longest.steps));
      known = longest.bytes > 0;
      if (!known) break;
      ids->push_back(longest.value);
      AppendPlaces(*ids, ids->size() - 1, {at, at + longest.bytes}, places);
      at += longest.bytes;
    }
    if (known) return absl::OkStatus();
    if (places != nullptr) places->resize(places->size() - (ids->size() - size));
    ids->resize(size);
    return AppendWhole(unknown_, piece, ids, places);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool joins_unknown() const override { return true; }

 private:
  Vocabulary vocabulary_;
  Trie beginnings_;     // the tokens that begin a word
  Trie continuations_;  // the other tokens of a word, without the prefix
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
