// Tokenizers as Hugging Face's library `tokenizers` saves them.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/post_processor.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice::tokenize {

// `text` is a tokenizer.json. Its truncation and padding are not looked at. What it has that is not
// supported is InvalidArgument that names it; so is whatever is wrong with it.
absl::StatusOr<std::unique_ptr<const Tokenizer>> ParseHuggingFace(std::string_view text,
                                                                  const SpecialTokens& specials);

}  // namespace sluice::tokenize
