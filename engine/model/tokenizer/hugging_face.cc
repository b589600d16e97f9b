#include "engine/model/tokenizer/hugging_face.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "base/work_memory.h"
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
  std::vector<std::string> special_texts() const override {
    std::vector<std::string> texts;
    for (const AddedToken& token : parts_.added.tokens()) {
      if (token.special) texts.push_back(token.content);
    }
    return texts;
  }
  int32_t IdOf(std::string_view token) const override {
    const int32_t added = parts_.added.IdOf(token);
    return added != kNoToken ? added : parts_.model->vocabulary().IdOf(token);
  }
  int64_t longest_token_bytes() const override {
    return std::max(LongestTokenBytes(*parts_.model), parts_.added.longest_bytes());
  }
  int64_t longest_decoded_bytes() const override {
    return parts_.decoder.MostBytes(longest_token_bytes());
  }

 private:
  // The result of EncodeText while it grows.
  struct Encoding {
    std::vector<int32_t> ids{};
    std::vector<ByteRange>* ranges;  // nullptr if places are not requested
    int64_t most;
    WorkMemory memory{};

    // Returns whether there are more than `most` tokens.
    bool enough() const { return std::ssize(ids) > most; }
    // Counts the memory of the tokens, and that of the new lists when they grow next.
    absl::Status Count() {
      const size_t of_ranges = ranges == nullptr ? 0 : ranges->capacity() * sizeof(ByteRange);
      return memory.Hold(static_cast<int64_t>(3 * (ids.capacity() * sizeof(ids[0]) + of_ranges)));
    }
    absl::Status Add(int32_t id, ByteRange range) {
      ids.push_back(id);
      if (ranges != nullptr) ranges->push_back(range);
      return Count();
    }
  };
  // The error of a visit that ends a search because there are enough tokens. EncodeText drops it.
  static absl::Status Enough() { return absl::OutOfRangeError("enough tokens"); }

  absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text, int64_t most,
                                                  std::vector<ByteRange>* ranges) const {
    Encoding made{.ranges = ranges, .most = most};
    OwnedText copy;
    const bool is_utf8 = IsUtf8({text.data(), text.size()});
    if (!is_utf8) {
      TextBuilder builder(text.size());
      AppendValidUtf8(text, &builder);
      SLUICE_ASSIGN_OR_RETURN(copy, std::move(builder).Finish());
    }
    const std::string_view valid = is_utf8 ? text : copy.text;
    const auto encode = [&](const AddedTokens::TextSpan& part) {
      if (made.enough()) return Enough();
      const size_t begin = part.text.data() - valid.data();
      if (part.id != kNoToken) return made.Add(part.id, TrimmedRange(part.text, begin));
      const size_t before = made.ids.size();
      absl::Status status = EncodeBetween(part.text, begin == 0, &made);
      if (ranges != nullptr) Shift(ranges, made.ids.size() - before, begin);
      return status;
    };
    const absl::Status status = parts_.added.FindRaw(valid, encode);
    if (!status.ok() && !made.enough()) return status;
    // The places would refer to another text.
    if (ranges != nullptr && !is_utf8) Forget(ranges, made.ids.size());
    return std::move(made.ids);
  }

  std::vector<std::string> TextsOf(std::span<const int32_t> ids) const {
    const Vocabulary& vocabulary = parts_.model->vocabulary();
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const int32_t id : ids) {
      if (const AddedToken* added = parts_.added.Get(id)) {
        if (!added->special) tokens.push_back(added->found);
      } else if (vocabulary.Has(id)) {
        tokens.push_back(vocabulary.TextOf(id));
      }
    }
    return tokens;
  }

  absl::Status EncodeBetween(std::string_view text, bool first, Encoding* made) const {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_ASSIGN_OR_RETURN(TracedText original, OriginalText(text, made->ranges != nullptr));
    SLUICE_ASSIGN_OR_RETURN(const TracedText traced, parts_.normalizer.Apply(std::move(original)));
    const std::string_view normal = traced.text;
    size_t left = traced.most;
    return parts_.added.FindNormalized(normal, [&](const AddedTokens::TextSpan& part) {
      if (made->enough()) return Enough();
      const size_t begin = part.text.data() - normal.data();
      if (part.id != kNoToken) {
        return made->Add(part.id, RangeOf(text, traced, begin, begin + part.text.size()));
      }
      WorkMemory memory;
      SLUICE_RETURN_IF_ERROR(memory.Hold(std::ssize(part.text)));
      InterruptionCounter counter;
      PreToken whole = {.text = std::string(part.text),
                        .first = first && begin == 0 && traced.begins_original,
                        .begin = begin};
      return parts_.pre_tokenizer.Apply(std::move(whole), &left, [&](const PreToken& piece) {
        if (made->enough()) return Enough();
        SLUICE_RETURN_IF_ERROR(counter.Check());
        return piece.text.empty() ? absl::OkStatus() : EncodePiece(piece, text, traced, made);
      });
    });
  }

  // `traced` is the normalised text, and `text` the original one.
  absl::Status EncodePiece(const PreToken& piece, std::string_view text, const TracedText& traced,
                           Encoding* made) const {
    if (!traced.traced) {
      SLUICE_RETURN_IF_ERROR(parts_.model->Encode(piece.text, &made->ids, nullptr));
      return made->Count();
    }
    WorkMemory memory;  // of a list that grows: a place for each byte
    constexpr int64_t kBytesOfPlace = 3 * (sizeof(SubwordModel::Place) + sizeof(ByteRange));
    SLUICE_RETURN_IF_ERROR(memory.Hold(std::ssize(piece.text) * kBytesOfPlace));
    std::vector<SubwordModel::Place> in_piece;
    SLUICE_RETURN_IF_ERROR(parts_.model->Encode(piece.text, &made->ids, &in_piece));
    SourcePlaces sources(&piece);
    for (const SubwordModel::Place& place : in_piece) {
      const auto [from, to] = sources.Of(place);
      made->ranges->push_back(RangeOf(text, traced, from, to));
    }
    return made->Count();
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

bool HasContentAndId(const nlohmann::json& token) {
  return token.is_object() && token.contains("content") && token["content"].is_string() &&
         token.contains("id") && token["id"].is_number_unsigned() &&
         token["id"].get<uint64_t>() < kMaxTokens;
}

// The list `added_tokens` as the library reads it. A token that is not in the vocabulary gets the
// next id, which is the number of tokens in the vocabulary, or one more than the largest id of the
// tokens that were added before.
class AddedList {
 public:
  explicit AddedList(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), next_(vocabulary.size()) {}

  // Adds the list of the file. The ids in the file do not count.
  void AddFile(const nlohmann::json& list, std::vector<std::string>* warnings) {
    std::string first;
    int64_t others = -1;  // tokens with another id, after the first
    for (const nlohmann::json& token : list) {
      if (!HasContentAndId(token)) {
        merged_.push_back(token);  // AddedTokens::Parse reports it
        continue;
      }
      const auto content = token["content"].get<std::string>();
      if (content.empty()) continue;
      const auto [place, added] = places_.emplace(content, merged_.size());
      if (added) merged_.push_back(token);
      nlohmann::json& entry = merged_[place->second];
      const int64_t id = added ? TakeId(content) : entry["id"].get<int64_t>();
      entry = token;
      entry["id"] = id;
      end_ = std::max(end_, id + 1);
      if (token["id"].get<int64_t>() == id) continue;
      if (++others == 0) {
        first = absl::StrCat("\"", absl::CEscape(content), "\" has id ", token["id"].get<int64_t>(),
                             ", but gets id ", id);
      }
    }
    next_ = std::max(next_, end_);
    if (first.empty() || warnings == nullptr) return;
    warnings->push_back(absl::StrCat("added_tokens of tokenizer.json: ", first,
                                     others > 0 ? absl::StrCat(", and ", others, " others") : "",
                                     "; the library also takes the id of the vocabulary, or else "
                                     "the next one after it"));
  }

  // Adds the tokens of the other files, as transformers does.
  void AddSpecials(const SpecialTokens& specials) {
    for (const NamedToken& token : specials.all) {
      if (token.content.empty()) continue;
      const auto [place, added] = places_.emplace(token.content, merged_.size());
      if (!added && !token.replaces) continue;
      if (added) {
        const int32_t known = vocabulary_.IdOf(token.content);
        if ((known == kNoToken ? next_ : known) >= specials.vocab_size) {
          places_.erase(place);
          continue;
        }
        merged_.push_back({{"id", TakeId(token.content)}, {"content", token.content}});
      }
      nlohmann::json& entry = merged_[place->second];
      entry["special"] = token.special;
      entry["single_word"] = token.single_word;
      entry["lstrip"] = token.lstrip;
      entry["rstrip"] = token.rstrip;
      entry["normalized"] = token.normalized;
    }
  }

  const nlohmann::json& merged() const { return merged_; }

 private:
  int64_t TakeId(const std::string& content) {
    const int32_t known = vocabulary_.IdOf(content);
    return known == kNoToken ? next_++ : known;
  }

  const Vocabulary& vocabulary_;
  nlohmann::json merged_ = nlohmann::json::array();
  absl::flat_hash_map<std::string, size_t> places_;  // in merged_, by content
  int64_t next_;
  int64_t end_ = 0;  // one more than the largest id of the file's tokens
};

// Returns the `added_tokens` of the file with the tokens of the other files.
nlohmann::json MergeAdded(const nlohmann::json* list, const SpecialTokens& specials,
                          const Vocabulary& vocabulary, std::vector<std::string>* warnings) {
  if (list != nullptr && !list->is_array()) return *list;  // AddedTokens::Parse reports it
  AddedList added(vocabulary);
  if (list != nullptr) added.AddFile(*list, warnings);
  added.AddSpecials(specials);
  return added.merged();
}

// Replaces a field of tokenizer.json by the setting `key` of tokenizer_config.json. Adds a warning
// if they contradict each other.
void Replace(const char* field, const char* key, const nlohmann::json& value,
             nlohmann::json* object, std::vector<std::string>* warnings) {
  const auto found = object->find(field);
  if (found != object->end() && *found != value && warnings != nullptr) {
    warnings->push_back(absl::StrCat("tokenizer.json has ", field, " ",
                                     found->is_structured() ? "of another type" : found->dump(),
                                     ", but ", key,
                                     " of tokenizer_config.json, or its default for "
                                     "the tokenizer_class, is ",
                                     value.dump(), "; the latter is used, as in transformers"));
  }
  (*object)[field] = value;
}

// Returns the normalizer of the file with the settings of the other files.
nlohmann::json WithSettings(const nlohmann::json* normalizer, const BertSettings& bert,
                            std::vector<std::string>* warnings) {
  nlohmann::json changed = normalizer == nullptr ? nlohmann::json() : *normalizer;
  if (!changed.is_object() || changed.value("type", nlohmann::json()) != "BertNormalizer") {
    return changed;
  }
  if (bert.lowercase) {
    Replace("lowercase", "do_lower_case", *bert.lowercase, &changed, warnings);
  }
  if (bert.ideographs) {
    Replace("handle_chinese_chars", "tokenize_chinese_chars", *bert.ideographs, &changed, warnings);
  }
  if (bert.strip_accents) {
    const std::optional<bool>& strips = *bert.strip_accents;
    Replace("strip_accents", "strip_accents", strips ? nlohmann::json(*strips) : nlohmann::json(),
            &changed, warnings);
  }
  return changed;
}

// Returns the pre-tokenizer of the file with the setting of tokenizer_config.json.
nlohmann::json WithPrefix(const nlohmann::json* pre_tokenizer, std::optional<bool> prefix,
                          std::vector<std::string>* warnings) {
  nlohmann::json changed = pre_tokenizer == nullptr ? nlohmann::json() : *pre_tokenizer;
  if (prefix && changed.is_object() && changed.value("type", nlohmann::json()) == "ByteLevel") {
    Replace("add_prefix_space", "add_prefix_space", *prefix, &changed, warnings);
  }
  return changed;
}

// Calls keep(part) for a part of the file and, if it is a sequence, for its parts in `list`.
// Removes a part if keep returns false.
template <typename Keep>
void KeepParts(nlohmann::json* document, const char* field, const char* list, Keep keep) {
  const auto part = document->find(field);
  if (part == document->end() || !part->is_object()) return;
  if (!keep(*part)) *part = nullptr;
  const auto parts = part->is_object() ? part->find(list) : part->end();
  if (parts == part->end() || !parts->is_array()) return;
  for (size_t i = parts->size(); i-- > 0;) {
    if ((*parts)[i].is_object() && !keep((*parts)[i])) parts->erase(i);
  }
}

// Removes the mark of a space before a text, and the step of the decoder that removes it.
void DropMark(nlohmann::json* document) {
  const auto is = [](const nlohmann::json& part, const char* type) {
    return part.value("type", nlohmann::json()) == type;
  };
  KeepParts(document, "normalizer", "normalizers",
            [&](nlohmann::json& part) { return !is(part, "Prepend"); });
  KeepParts(document, "pre_tokenizer", "pretokenizers", [&](nlohmann::json& part) {
    if (is(part, "Metaspace")) part["prepend_scheme"] = "never";
    return true;
  });
  KeepParts(document, "decoder", "decoders",
            [&](nlohmann::json& part) { return !is(part, "Strip"); });
}

// Adds or removes bos and eos around texts as the other files state, and adds a warning for each
// change.
void SetEnds(const SpecialTokens& specials, Parts* parts, std::vector<std::string>* warnings) {
  const auto set = [&](const char* key, std::optional<bool> wanted, const std::string& token,
                       auto* change) {
    if (!wanted || !change(IdOf(*parts, token), *wanted, &parts->templates)) return;
    if (warnings == nullptr) return;
    warnings->push_back(
        absl::StrCat(key, " of tokenizer_config.json ", *wanted ? "adds" : "removes", " \"",
                     absl::CEscape(token), "\", which the post_processor of tokenizer.json ",
                     *wanted ? "does not add" : "adds",
                     "; transformers 4 does so for some classes, and version 5 for none"));
  };
  set("add_bos_token", specials.add_bos, specials.bos, SetBos);
  set("add_eos_token", specials.add_eos, specials.eos, SetEos);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> ParseHuggingFace(
    std::string_view text, const SpecialTokens& specials, std::vector<std::string>* warnings) {
  SLUICE_ASSIGN_OR_RETURN(auto document, ParseJson(text, kMaxTokenizerDepth));
  if (!document.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  if (specials.without_mark) DropMark(&document);
  Parts parts;
  absl::Status status;
  const nlohmann::json normalizer =
      WithSettings(FieldOf(document, "normalizer"), specials.bert, warnings);
  const nlohmann::json pre_tokenizer =
      WithPrefix(FieldOf(document, "pre_tokenizer"), specials.add_prefix_space, warnings);
  Take(Normalizer::Parse(normalizer.is_null() ? nullptr : &normalizer), &parts.normalizer, &status);
  Take(PreTokenizer::Parse(pre_tokenizer.is_null() ? nullptr : &pre_tokenizer),
       &parts.pre_tokenizer, &status);
  Take(ParseSubwordModel(FieldOf(document, "model")), &parts.model, &status);
  SLUICE_RETURN_IF_ERROR(status);
  const nlohmann::json added =
      MergeAdded(FieldOf(document, "added_tokens"), specials, parts.model->vocabulary(), warnings);
  Take(AddedTokens::Parse(&added, parts.normalizer), &parts.added, &status);
  Take(ParsePostProcessor(FieldOf(document, "post_processor")), &parts.templates, &status);
  Take(Decoder::Parse(FieldOf(document, "decoder")), &parts.decoder, &status);
  SLUICE_RETURN_IF_ERROR(status);
  SetEnds(specials, &parts, warnings);
  return std::make_unique<HuggingFaceTokenizer>(std::move(parts));
}

}  // namespace sluice::tokenize
