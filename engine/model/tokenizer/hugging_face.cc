#include "engine/model/tokenizer/hugging_face.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/added_tokens.h"
#include "engine/model/tokenizer/decoder.h"
#include "engine/model/tokenizer/normalizer.h"
#include "engine/model/tokenizer/places.h"
#include "engine/model/tokenizer/pre_tokenizer.h"
#include "engine/model/tokenizer/subword_model.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

constexpr int kMaxTokenizerDepth = 32;

struct Parts {
  Normalizer normalizer;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const SubwordModel> model;
  TextTemplates templates;
  Decoder decoder;
};

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  explicit HuggingFaceTokenizer(Parts parts)
      : Tokenizer(std::move(parts.templates)), parts_(std::move(parts)) {}

  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view text,
                                                  int64_t most) const override {
    return EncodeText(text, most, nullptr);
  }
  absl::StatusOr<std::vector<int32_t>> EncodeLocated(
      std::string_view text, int64_t most, std::vector<ByteRange>* ranges) const override {
    return EncodeText(text, most, ranges);
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    return parts_.decoder.Apply(TextsOf(ids), /*keep_bytes=*/false);
  }
  std::string DecodeBytes(std::span<const int32_t> ids) const override {
    return parts_.decoder.Apply(TextsOf(ids), /*keep_bytes=*/true);
  }
  bool TextIsUtf8() const override { return true; }
  int64_t longest_token_bytes() const override {
    return std::max(LongestTokenBytes(*parts_.model), parts_.added.longest_bytes());
  }

 private:
  // `ranges` is nullptr if places are not requested.
  absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text, int64_t most,
                                                  std::vector<ByteRange>* ranges) const {
    std::vector<int32_t> ids;
    const std::string valid = ToValidUtf8(text);
    for (const AddedTokens::TextSpan& part : parts_.added.FindRaw(valid)) {
      const size_t begin = part.text.data() - valid.data();
      if (part.id != kNoToken) {
        ids.push_back(part.id);
        if (ranges != nullptr) ranges->push_back(TrimmedRange(part.text, begin));
        continue;
      }
      const size_t before = ids.size();
      SLUICE_RETURN_IF_ERROR(EncodeBetween(part.text, begin == 0, most, &ids, ranges));
      if (ranges != nullptr) Shift(ranges, ids.size() - before, begin);
      if (std::ssize(ids) > most) break;
    }
    // If the text has bytes that are not UTF-8, the places would refer to another text.
    if (ranges != nullptr && valid != text) Forget(ranges, ids.size());
    return ids;
  }

  std::vector<std::string> TextsOf(std::span<const int32_t> ids) const {
    const Vocabulary& vocabulary = parts_.model->vocabulary();
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const int32_t id : ids) {
      if (const AddedToken* added = parts_.added.Get(id)) {
        if (!added->special) tokens.push_back(added->content);
      } else if (vocabulary.Has(id)) {
        tokens.push_back(vocabulary.TextOf(id));
      }
    }
    return tokens;
  }

  absl::Status EncodeBetween(std::string_view text, bool first, int64_t most,
                             std::vector<int32_t>* ids, std::vector<ByteRange>* ranges) const {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_ASSIGN_OR_RETURN(const std::string normal, parts_.normalizer.Apply(text));
    std::optional<PlaceMap> places;
    if (ranges != nullptr) {
      SLUICE_ASSIGN_OR_RETURN(places, PlaceMap::Make(text, normal, parts_.normalizer));
    }
    for (const AddedTokens::TextSpan& part : parts_.added.FindNormalized(normal)) {
      const size_t begin = part.text.data() - normal.data();
      if (part.id != kNoToken) {
        ids->push_back(part.id);
        if (places) ranges->push_back(places->Of(begin, begin + part.text.size()));
        continue;
      }
      std::vector<PreToken> pieces;
      pieces.push_back(
          {.text = std::string(part.text), .first = first && begin == 0, .begin = begin});
      SLUICE_RETURN_IF_ERROR(parts_.pre_tokenizer.Apply(&pieces));
      InterruptionCounter counter;
      for (const PreToken& piece : pieces) {
        if (std::ssize(*ids) > most) return absl::OkStatus();
        SLUICE_RETURN_IF_ERROR(counter.Check());
        if (piece.text.empty()) continue;
        std::vector<SubwordModel::Place> in_piece;
        SLUICE_RETURN_IF_ERROR(parts_.model->Encode(piece.text, ids, places ? &in_piece : nullptr));
        for (const SubwordModel::Place& place : in_piece) {
          const auto [from, to] = SourceOf(piece, place);
          ranges->push_back(places->Of(from, to));
        }
      }
    }
    return absl::OkStatus();
  }

  Parts parts_;
};

const nlohmann::json* FieldOf(const nlohmann::json& document, const char* key) {
  const auto it = document.find(key);
  return it == document.end() || it->is_null() ? nullptr : &*it;
}

template <typename T>
void Take(absl::StatusOr<T> parsed, T* part, absl::Status* status) {
  status->Update(parsed.status());
  if (parsed.ok()) *part = *std::move(parsed);
}

int32_t IdOf(const Parts& parts, const std::string& token) {
  if (token.empty()) return kNoToken;
  const int32_t added = parts.added.IdOf(token);
  return added != kNoToken ? added : parts.model->vocabulary().IdOf(token);
}

// Returns the `added_tokens` of the file with the tokens of the other files. As in transformers, a
// token that is not in the vocabulary gets the first id after all others.
nlohmann::json MergeAdded(const nlohmann::json* list, const SpecialTokens& specials,
                          const Vocabulary& vocabulary) {
  nlohmann::json merged = list == nullptr ? nlohmann::json::array() : *list;
  if (!merged.is_array()) return merged;  // AddedTokens::Parse reports it
  absl::flat_hash_map<std::string, size_t> places;
  int64_t next = vocabulary.end();
  for (size_t i = 0; i < merged.size(); ++i) {
    const nlohmann::json& token = merged[i];
    if (!token.is_object() || !token.contains("content") || !token.contains("id")) continue;
    if (!token["content"].is_string() || !token["id"].is_number_integer()) continue;
    places.emplace(token["content"].get<std::string>(), i);
    next = std::max(next, token["id"].get<int64_t>() + 1);
  }
  for (const NamedToken& token : specials.all) {
    if (token.content.empty()) continue;
    const auto [place, added] = places.emplace(token.content, merged.size());
    if (!added && !token.replaces) continue;
    if (added) {
      const int32_t known = vocabulary.IdOf(token.content);
      const int64_t id = known == kNoToken ? next : known;
      if (id >= specials.vocab_size) {
        places.erase(place);
        continue;
      }
      if (known == kNoToken) ++next;
      merged.push_back({{"id", id}, {"content", token.content}});
    }
    nlohmann::json& entry = merged[place->second];
    entry["special"] = token.special;
    entry["single_word"] = token.single_word;
    entry["lstrip"] = token.lstrip;
    entry["rstrip"] = token.rstrip;
    entry["normalized"] = token.normalized;
  }
  return merged;
}

// Returns the normalizer of the file with the settings of the other files.
nlohmann::json WithSettings(const nlohmann::json* normalizer, const BertSettings& bert) {
  nlohmann::json changed = normalizer == nullptr ? nlohmann::json() : *normalizer;
  if (!changed.is_object() || changed.value("type", nlohmann::json()) != "BertNormalizer") {
    return changed;
  }
  if (bert.lowercase) changed["lowercase"] = *bert.lowercase;
  if (bert.ideographs) changed["handle_chinese_chars"] = *bert.ideographs;
  if (bert.strip_accents) {
    const std::optional<bool>& strips = *bert.strip_accents;
    changed["strip_accents"] = strips ? nlohmann::json(*strips) : nlohmann::json();
  }
  return changed;
}

// Returns the pre-tokenizer of the file with the setting of tokenizer_config.json.
nlohmann::json WithPrefix(const nlohmann::json* pre_tokenizer, std::optional<bool> prefix) {
  nlohmann::json changed = pre_tokenizer == nullptr ? nlohmann::json() : *pre_tokenizer;
  if (prefix && changed.is_object() && changed.value("type", nlohmann::json()) == "ByteLevel") {
    changed["add_prefix_space"] = *prefix;
  }
  return changed;
}

// Adds or removes bos and eos around texts as the other files state.
void SetEnds(const SpecialTokens& specials, Parts* parts) {
  if (specials.add_bos) SetBos(IdOf(*parts, specials.bos), *specials.add_bos, &parts->templates);
  if (specials.add_eos) SetEos(IdOf(*parts, specials.eos), *specials.add_eos, &parts->templates);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> ParseHuggingFace(std::string_view text,
                                                                  const SpecialTokens& specials) {
  SLUICE_ASSIGN_OR_RETURN(const auto document, ParseJson(text, kMaxTokenizerDepth));
  if (!document.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  Parts parts;
  absl::Status status;
  const nlohmann::json normalizer = WithSettings(FieldOf(document, "normalizer"), specials.bert);
  const nlohmann::json pre_tokenizer =
      WithPrefix(FieldOf(document, "pre_tokenizer"), specials.add_prefix_space);
  Take(Normalizer::Parse(normalizer.is_null() ? nullptr : &normalizer), &parts.normalizer, &status);
  Take(PreTokenizer::Parse(pre_tokenizer.is_null() ? nullptr : &pre_tokenizer),
       &parts.pre_tokenizer, &status);
  Take(ParseSubwordModel(FieldOf(document, "model")), &parts.model, &status);
  SLUICE_RETURN_IF_ERROR(status);
  const nlohmann::json added =
      MergeAdded(FieldOf(document, "added_tokens"), specials, parts.model->vocabulary());
  Take(AddedTokens::Parse(&added, parts.normalizer), &parts.added, &status);
  Take(ParsePostProcessor(FieldOf(document, "post_processor")), &parts.templates, &status);
  Take(Decoder::Parse(FieldOf(document, "decoder")), &parts.decoder, &status);
  SLUICE_RETURN_IF_ERROR(status);
  SetEnds(specials, &parts);
  return std::make_unique<HuggingFaceTokenizer>(std::move(parts));
}

}  // namespace sluice::tokenize
