// The files about text in the directory of a model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "engine/model/directory.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// Makes the tokenizer of tokenizer.json, or else of tokenizer.model (SentencePiece); returns
// nullptr if neither file exists. For tokenizer.json, the settings of tokenizer_config.json,
// special_tokens_map.json and added_tokens.json are applied as the class that they name applies
// them in transformers: tokens and their flags, do_lower_case, strip_accents,
// tokenize_chinese_chars, add_prefix_space, and, as in version 4, add_bos_token and add_eos_token.
// Chat templates are ignored. A text that has a token of `vocab_size` or above is refused. If
// `lower_case`, texts are converted to lower case before they are encoded. Errors name the file and
// the field. Settings that contradict tokenizer.json are added to `warnings`, which may be nullptr.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(
    const Directory& directory, int64_t vocab_size, bool lower_case = false,
    std::vector<std::string>* warnings = nullptr);

// Returns the texts of the special tokens that the tokenizer's files name, by key, such as
// "mask_token".
absl::StatusOr<std::map<std::string, std::string>> ReadSpecialNames(const Directory& directory);

// Replaces the tokens that end a text by those of generation_config.json, if it names any.
absl::Status LoadEndTokens(const Directory& directory, ModelConfig* config);

}  // namespace sluice
