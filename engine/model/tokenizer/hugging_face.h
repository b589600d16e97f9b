// Tokenizers in the format of Hugging Face's library `tokenizers`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/post_processor.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice::tokenize {

// Makes a tokenizer from `text`, a tokenizer.json. Its truncation and padding are ignored. Returns
// InvalidArgument with the name of the unsupported or wrong part. Settings that contradict the file
// are added to `warnings`, which may be nullptr.
absl::StatusOr<std::unique_ptr<const Tokenizer>> ParseHuggingFace(
    std::string_view text, const SpecialTokens& specials,
    std::vector<std::string>* warnings = nullptr);

}  // namespace sluice::tokenize
