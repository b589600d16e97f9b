// What a model's directory says of text.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/directory.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// Of tokenizer.json, else of tokenizer.model (SentencePiece); nullptr where neither is there. Special
// tokens, and whether a text begins with bos and ends with eos, are those of tokenizer_config.json and
// special_tokens_map.json, where these say so; chat templates are not looked at. A text that has a token
// of `vocab_size` or above is refused. Errors name the file and the field.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const Directory& directory,
                                                               int64_t vocab_size);

// The tokens that end a text by generation_config.json; empty where that says nothing.
absl::StatusOr<std::vector<int32_t>> LoadEndTokens(const Directory& directory, int64_t vocab_size);

}  // namespace sluice
