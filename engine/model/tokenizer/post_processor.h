// The tokens to put around texts, according to the files of a tokenizer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/text_template.h"

namespace sluice::tokenize {

// These add or remove `bos` before each text and `eos` after it. If that changes the template of
// one text, a pair becomes two such texts, the second one of type 1. A token of kNoToken is
// ignored.
void SetBos(int32_t bos, bool wanted, TextTemplates* templates);
void SetEos(int32_t eos, bool wanted, TextTemplates* templates);

// Reads the `post_processor` of a tokenizer.json: TemplateProcessing, BertProcessing,
// RobertaProcessing, ByteLevel (which adds no tokens) and Sequences of these. nullptr adds no
// tokens, and has no template of a pair. Errors, such as an unsupported type, name the field.
absl::StatusOr<TextTemplates> ParsePostProcessor(const nlohmann::json* object);

// The special tokens in the files next to the tokenizer's: tokenizer_config.json and
// special_tokens_map.json.
struct SpecialTokens {
  std::string bos, eos;  // empty if not named
  std::optional<bool> add_bos, add_eos;
  std::vector<std::string> all;  // all tokens that decode to nothing
  std::string tokenizer_class;
};

}  // namespace sluice::tokenize
