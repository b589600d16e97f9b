#include "engine/model/tokenizer_files.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "base/work_memory.h"
#include "engine/model/config_reader.h"
#include "engine/model/settings_file.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/sentencepiece.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice {
namespace {

using nlohmann::json;
using tokenize::BertSettings;
using tokenize::NamedToken;
using tokenize::SpecialTokens;

constexpr size_t kMaxTokenizerBytes = size_t{64} << 20;
constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxEndTokens = 64;
// The valid copy of a text may have three bytes for one, the lower-case copy a half more, and each
// exists once and a half while it grows.
constexpr int64_t kLowerBytesOfByte = 12;
constexpr const char* kSpecialKeys[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                        "cls_token", "sep_token", "mask_token"};

// Refuses tokens beyond the vocabulary, which would access memory after the end of its tables.
// Converts texts to lower case if requested.
class BoundedTokenizer final : public Tokenizer {
 public:
  BoundedTokenizer(std::unique_ptr<const Tokenizer> tokenizer, int64_t vocab_size, bool lower_case)
      : Tokenizer(tokenizer->templates()),
        tokenizer_(std::move(tokenizer)),
        vocab_size_(vocab_size),
        lower_case_(lower_case) {}

  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view text,
                                                  int64_t most) const override {
    WorkMemory memory;
    std::string lower;
    if (lower_case_) {
      SLUICE_RETURN_IF_ERROR(memory.Hold(std::ssize(text) * kLowerBytesOfByte));
      lower = tokenize::ToLowerText(tokenize::ToValidUtf8(text));
    }
    SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                            tokenizer_->EncodeBare(lower_case_ ? lower : text, most));
    SLUICE_RETURN_IF_ERROR(CheckIds(ids));
    return ids;
  }

  absl::StatusOr<std::vector<int32_t>> EncodeLocated(
      std::string_view text, int64_t most, std::vector<ByteRange>* ranges) const override {
    // The lower-case text may have other places.
    if (lower_case_) return Tokenizer::EncodeLocated(text, most, ranges);
    SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                            tokenizer_->EncodeLocated(text, most, ranges));
    SLUICE_RETURN_IF_ERROR(CheckIds(ids));
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    return tokenizer_->Decode(ids);
  }
  std::string DecodeBytes(std::span<const int32_t> ids) const override {
    return tokenizer_->DecodeBytes(ids);
  }
  bool TextIsUtf8() const override { return tokenizer_->TextIsUtf8(); }
  std::vector<std::string> special_texts() const override { return tokenizer_->special_texts(); }
  int32_t IdOf(std::string_view token) const override {
    const int32_t id = tokenizer_->IdOf(token);
    return id < vocab_size_ ? id : -1;
  }
  int64_t longest_token_bytes() const override { return tokenizer_->longest_token_bytes(); }
  int64_t longest_decoded_bytes() const override { return tokenizer_->longest_decoded_bytes(); }

 private:
  absl::Status CheckIds(const std::vector<int32_t>& ids) const {
    for (const int32_t id : ids) {
      if (id < vocab_size_) continue;
      return absl::OutOfRangeError(absl::StrCat(
          "token ", id, " of the text is not one of the model's ", vocab_size_, " tokens"));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  int64_t vocab_size_;
  bool lower_case_;
};

absl::Status CheckTemplate(const TextTemplate& texts, int64_t vocab_size) {
  for (const TextTemplate::Element& part : texts.parts) {
    if (part.text != TextTemplate::kNoText || part.token < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("post_processor adds token ", part.token,
                                                   ", which is not one of the model's ", vocab_size,
                                                   " tokens"));
  }
  return absl::OkStatus();
}

// Returns the token's text, written as "text" or as an object with a `content`.
std::string TokenText(const json& token) {
  const json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  if (!text.is_string() || text.get_ref<const std::string&>().size() > kMaxTextBytes) return "";
  return text.get<std::string>();
}

std::optional<bool> Flag(const json& settings, const char* key) {
  const auto it = settings.find(key);
  if (it == settings.end() || !it->is_boolean()) return std::nullopt;
  return it->get<bool>();
}

// Reads a token that is a text or an object; a text has the flags of `usual`.
NamedToken ReadToken(const json& token, const NamedToken& usual) {
  NamedToken read = usual;
  read.content = TokenText(token);
  if (!token.is_object()) return read;
  read.single_word = Flag(token, "single_word").value_or(usual.single_word);
  read.lstrip = Flag(token, "lstrip").value_or(usual.lstrip);
  read.rstrip = Flag(token, "rstrip").value_or(usual.rstrip);
  read.normalized = Flag(token, "normalized").value_or(usual.normalized);
  return read;
}

void ReadTokens(const json& settings, SpecialTokens* specials) {
  for (const char* key : kSpecialKeys) {
    NamedToken token = settings.contains(key) ? ReadToken(settings[key], {}) : NamedToken();
    if (token.content.empty()) continue;
    if (key == std::string_view("bos_token")) specials->bos = token.content;
    if (key == std::string_view("eos_token")) specials->eos = token.content;
    specials->all.push_back(std::move(token));
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const json more = settings.value(key, json());  // a list, or an object of names and tokens
    if (!more.is_structured()) continue;
    for (const json& token : more) specials->all.push_back(ReadToken(token, {}));
  }
}

// Reads the tokens with their flags from added_tokens_decoder, in the order of their keys; or else
// from added_tokens.json, which has ids by token.
absl::Status ReadAddedTokens(const Directory& directory, const json& settings,
                             SpecialTokens* specials) {
  std::map<int64_t, NamedToken> tokens;
  const json decoder = settings.value("added_tokens_decoder", json());
  if (decoder.is_object()) {
    for (const auto& [key, token] : decoder.items()) {
      int64_t index = 0;
      if (!absl::SimpleAtoi(key, &index)) continue;
      NamedToken read = ReadToken(token, {.normalized = true, .replaces = true});
      read.special = Flag(token, "special").value_or(false);
      tokens.emplace(index, std::move(read));
    }
  } else {
    SLUICE_ASSIGN_OR_RETURN(const json added, ReadSettings(directory, "added_tokens.json"));
    for (const auto& [text, id] : added.items()) {
      if (!id.is_number_integer() || text.size() > kMaxTextBytes) continue;
      tokens.emplace(id.get<int64_t>(),
                     NamedToken{.content = text, .special = false, .normalized = true});
    }
  }
  for (auto& [index, token] : tokens) specials->all.push_back(std::move(token));
  return absl::OkStatus();
}

// Classes of transformers, without the ending "Fast".
// These set the fields of BertNormalizer by their arguments.
constexpr std::string_view kBertClasses[] = {
    "BertTokenizer",       "ConvBertTokenizer",  "DistilBertTokenizer", "ElectraTokenizer",
    "FunnelTokenizer",     "LayoutLMTokenizer",  "LxmertTokenizer",     "MPNetTokenizer",
    "MobileBertTokenizer", "RetriBertTokenizer", "SqueezeBertTokenizer"};
// These set add_prefix_space of ByteLevel by their argument.
constexpr std::string_view kByteLevelClasses[] = {
    "BartTokenizer", "BlenderbotTokenizer", "CodeGenTokenizer", "DebertaTokenizer",
    "GPT2Tokenizer", "GPTNeoXTokenizer",    "LEDTokenizer",     "LongformerTokenizer",
    "MvpTokenizer",  "Qwen2Tokenizer",      "RobertaTokenizer", "WhisperTokenizer"};
// These make the template from add_bos_token and add_eos_token; others have it from the file.
constexpr std::string_view kTemplateClasses[] = {"CodeLlamaTokenizer", "CohereTokenizer",
                                                 "GPTNeoXTokenizer", "GemmaTokenizer",
                                                 "LlamaTokenizer"};

bool IsIn(std::span<const std::string_view> classes, std::string_view name) {
  return std::ranges::find(classes, name) != classes.end();
}

// Applies the keys of tokenizer_config.json as the tokenizer's class does. Without a class, each
// key is applied if it is there.
void ReadClassSettings(const json& settings, SpecialTokens* specials) {
  std::string_view name = specials->tokenizer_class;
  if (name.ends_with("Fast")) name.remove_suffix(4);
  const bool named = !name.empty();
  if (!named || IsIn(kBertClasses, name)) {
    BertSettings& bert = specials->bert;
    bert.lowercase = Flag(settings, "do_lower_case");
    bert.ideographs = Flag(settings, "tokenize_chinese_chars");
    if (named || settings.contains("strip_accents")) {
      bert.strip_accents = Flag(settings, "strip_accents");
    }
    if (named && !bert.lowercase) bert.lowercase = true;
    if (named && !bert.ideographs) bert.ideographs = true;
  }
  if (!named || IsIn(kByteLevelClasses, name)) {
    specials->add_prefix_space = Flag(settings, "add_prefix_space");
    if (named && !specials->add_prefix_space) specials->add_prefix_space = false;
  }
  if (name == "LlamaTokenizer") {
    specials->without_mark = Flag(settings, "add_prefix_space") == false;
  }
  if (named && !IsIn(kTemplateClasses, name)) {
    specials->add_bos.reset();
    specials->add_eos.reset();
  }
}

absl::StatusOr<SpecialTokens> ReadSpecialTokens(const Directory& directory, int64_t vocab_size,
                                                bool hugging_face) {
  SpecialTokens specials;
  specials.vocab_size = vocab_size;
  json last;
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    SLUICE_ASSIGN_OR_RETURN(const auto settings, ReadSettings(directory, file));
    last = settings;
    ReadTokens(settings, &specials);
    if (const auto flag = Flag(settings, "add_bos_token")) specials.add_bos = flag;
    if (const auto flag = Flag(settings, "add_eos_token")) specials.add_eos = flag;
    const auto it = settings.find("tokenizer_class");
    if (it != settings.end()) specials.tokenizer_class = TokenText(*it);
  }
  if (!hugging_face) return specials;
  std::vector<NamedToken> named = std::exchange(specials.all, {});
  SLUICE_RETURN_IF_ERROR(ReadAddedTokens(directory, last, &specials));
  specials.all.insert(specials.all.end(), named.begin(), named.end());
  ReadClassSettings(last, &specials);
  return specials;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const Directory& directory,
                                                               int64_t vocab_size, bool lower_case,
                                                               std::vector<std::string>* warnings) {
  constexpr char kHuggingFace[] = "tokenizer.json";
  constexpr char kSentencePiece[] = "tokenizer.model";
  const bool hugging_face = directory.Has(kHuggingFace);
  const char* file = hugging_face ? kHuggingFace : kSentencePiece;
  if (!hugging_face && !directory.Has(kSentencePiece)) {
    for (const char* unread : {"vocab.txt", "vocab.json", "spiece.model"}) {
      if (!directory.Has(unread) || warnings == nullptr) continue;
      warnings->push_back(
          absl::StrCat(unread,
                       " is not read without tokenizer.json, so the model takes no texts; "
                       "make it by transformers: AutoTokenizer.from_pretrained(DIR)"
                       ".save_pretrained(DIR)"));
      break;
    }
    return nullptr;
  }
  SLUICE_ASSIGN_OR_RETURN(const auto bytes, directory.Read(file, kMaxTokenizerBytes));
  SLUICE_ASSIGN_OR_RETURN(const auto specials,
                          ReadSpecialTokens(directory, vocab_size, hugging_face));
  auto tokenizer = hugging_face ? tokenize::ParseHuggingFace(bytes, specials, warnings)
                                : tokenize::ParseSentencePiece(bytes, specials);
  if (!tokenizer.ok()) return OfFile(file, tokenizer.status());
  const TextTemplates& templates = (*tokenizer)->templates();
  absl::Status status = CheckTemplate(templates.single, vocab_size);
  if (templates.pair) status.Update(CheckTemplate(*templates.pair, vocab_size));
  if (!status.ok()) return OfFile(file, status);
  return std::make_unique<BoundedTokenizer>(*std::move(tokenizer), vocab_size, lower_case);
}

absl::StatusOr<std::map<std::string, std::string>> ReadSpecialNames(const Directory& directory) {
  std::map<std::string, std::string> names;
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    SLUICE_ASSIGN_OR_RETURN(const json settings, ReadSettings(directory, file));
    for (const char* key : kSpecialKeys) {
      const std::string text = settings.contains(key) ? TokenText(settings[key]) : "";
      if (!text.empty()) names[key] = text;
    }
  }
  return names;
}

absl::Status LoadEndTokens(const Directory& directory, ModelConfig* config) {
  constexpr char kFile[] = "generation_config.json";
  SLUICE_ASSIGN_OR_RETURN(const auto settings, ReadSettings(directory, kFile));
  absl::Status status;
  ObjectReader root(settings, absl::StrCat(kFile, ": "), &status);
  std::vector<int32_t> ends = ReadTokenIds(root, "eos_token_id", kMaxEndTokens, *config);
  if (!ends.empty()) config->eos_token_ids = std::move(ends);
  return status;
}

}  // namespace sluice
