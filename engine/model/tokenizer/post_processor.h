// The tokens to put around texts, according to the files of a tokenizer.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/text_template.h"

namespace sluice::tokenize {

// These add or remove `bos` before each text and `eos` after it. If that changes the template of
// one text, a pair becomes two such texts, the second one of type 1. A token of kNoToken is
// ignored. They return whether the template changed.
bool SetBos(int32_t bos, bool wanted, TextTemplates* templates);
bool SetEos(int32_t eos, bool wanted, TextTemplates* templates);

// Reads the `post_processor` of a tokenizer.json: TemplateProcessing, BertProcessing,
// RobertaProcessing, ByteLevel (which adds no tokens) and Sequences of these. nullptr adds no
// tokens, and has no template of a pair. Errors, such as an unsupported type, name the field.
absl::StatusOr<TextTemplates> ParsePostProcessor(const nlohmann::json* object);

// A token of the files next to the tokenizer's; see AddedToken.
struct NamedToken {
  std::string content = {};
  bool special = true;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool replaces = false;  // whether its flags replace the flags of a token of tokenizer.json
};

// The settings of BertNormalizer; tokenizer.json has the absent ones.
struct BertSettings {
  std::optional<bool> lowercase = {}, ideographs = {};
  std::optional<std::optional<bool>> strip_accents;  // null: as lowercase
};

// The settings in the files next to the tokenizer's: tokenizer_config.json, special_tokens_map.json
// and added_tokens.json.
struct SpecialTokens {
  std::string bos, eos;  // empty if not named
  std::optional<bool> add_bos, add_eos;
  // Tokens to find in texts, in the order in which those that are not in the vocabulary get ids.
  std::vector<NamedToken> all;
  int64_t vocab_size = std::numeric_limits<int32_t>::max();  // higher ids are not added
  std::string tokenizer_class;
  BertSettings bert;
  std::optional<bool> add_prefix_space;  // of a pre-tokenizer ByteLevel
  bool without_mark = false;  // no mark of a space before a text, although the file may state one
};

}  // namespace sluice::tokenize
