// The files about text in the directory of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/directory.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// Makes the tokenizer of tokenizer.json, or else of tokenizer.model (SentencePiece); returns
// nullptr if neither file exists. tokenizer_config.json and special_tokens_map.json may set which
// tokens are special, and whether a text begins with bos and ends with eos. Chat templates are
// ignored. A text that has a token of `vocab_size` or above is refused. If `lower_case`, texts are
// converted to lower case before they are encoded. Errors name the file and the field.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const Directory& directory,
                                                               int64_t vocab_size,
                                                               bool lower_case = false);

// Returns the tokens that end a text according to generation_config.json; empty if it names none.
absl::StatusOr<std::vector<int32_t>> LoadEndTokens(const Directory& directory, int64_t vocab_size);

}  // namespace sluice
