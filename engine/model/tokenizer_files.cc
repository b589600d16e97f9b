#include "engine/model/tokenizer_files.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/settings_file.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/sentencepiece.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice {
namespace {

using nlohmann::json;
using tokenize::SpecialTokens;

constexpr size_t kMaxTokenizerBytes = size_t{64} << 20;
constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxEndTokens = 64;

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
    SLUICE_ASSIGN_OR_RETURN(
        std::vector<int32_t> ids,
        tokenizer_->EncodeBare(lower_case_ ? tokenize::ToLower(tokenize::ToValidUtf8(text)) : text,
                               most));
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
  int64_t longest_token_bytes() const override { return tokenizer_->longest_token_bytes(); }

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

void ReadTokens(const json& settings, SpecialTokens* specials) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "cls_token",
                          "sep_token", "mask_token"}) {
    const std::string text = settings.contains(key) ? TokenText(settings[key]) : "";
    if (text.empty()) continue;
    specials->all.push_back(text);
    if (key == std::string_view("bos_token")) specials->bos = text;
    if (key == std::string_view("eos_token")) specials->eos = text;
  }
  const json more = settings.value("additional_special_tokens", json());
  for (const json& token : more.is_array() ? more : json::array()) {
    specials->all.push_back(TokenText(token));
  }
}

std::optional<bool> Flag(const json& settings, const char* key) {
  const auto it = settings.find(key);
  if (it == settings.end() || !it->is_boolean()) return std::nullopt;
  return it->get<bool>();
}

absl::StatusOr<SpecialTokens> ReadSpecialTokens(const Directory& directory) {
  SpecialTokens specials;
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    SLUICE_ASSIGN_OR_RETURN(const auto settings, ReadSettings(directory, file));
    ReadTokens(settings, &specials);
    if (const auto flag = Flag(settings, "add_bos_token")) specials.add_bos = flag;
    if (const auto flag = Flag(settings, "add_eos_token")) specials.add_eos = flag;
    const auto it = settings.find("tokenizer_class");
    if (it != settings.end()) specials.tokenizer_class = TokenText(*it);
  }
  return specials;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const Directory& directory,
                                                               int64_t vocab_size,
                                                               bool lower_case) {
  constexpr char kHuggingFace[] = "tokenizer.json";
  constexpr char kSentencePiece[] = "tokenizer.model";
  const bool hugging_face = directory.Has(kHuggingFace);
  const char* file = hugging_face ? kHuggingFace : kSentencePiece;
  if (!hugging_face && !directory.Has(kSentencePiece)) return nullptr;
  SLUICE_ASSIGN_OR_RETURN(const auto bytes, directory.Read(file, kMaxTokenizerBytes));
  SLUICE_ASSIGN_OR_RETURN(const auto specials, ReadSpecialTokens(directory));
  auto tokenizer = hugging_face ? tokenize::ParseHuggingFace(bytes, specials)
                                : tokenize::ParseSentencePiece(bytes, specials);
  if (!tokenizer.ok()) return OfFile(file, tokenizer.status());
  const TextTemplates& templates = (*tokenizer)->templates();
  absl::Status status = CheckTemplate(templates.single, vocab_size);
  if (templates.pair) status.Update(CheckTemplate(*templates.pair, vocab_size));
  if (!status.ok()) return OfFile(file, status);
  return std::make_unique<BoundedTokenizer>(*std::move(tokenizer), vocab_size, lower_case);
}

absl::StatusOr<std::vector<int32_t>> LoadEndTokens(const Directory& directory, int64_t vocab_size) {
  constexpr char kFile[] = "generation_config.json";
  SLUICE_ASSIGN_OR_RETURN(const auto settings, ReadSettings(directory, kFile));
  absl::Status status;
  ObjectReader root(settings, absl::StrCat(kFile, ": "), &status);
  const std::vector<int64_t> ends = root.Integers("eos_token_id", 0, vocab_size - 1);
  if (ends.size() > kMaxEndTokens) {
    root.Fail("eos_token_id", absl::StrCat("names more than ", kMaxEndTokens, " tokens"));
  }
  SLUICE_RETURN_IF_ERROR(status);
  return std::vector<int32_t>(ends.begin(), ends.end());
}

}  // namespace sluice
