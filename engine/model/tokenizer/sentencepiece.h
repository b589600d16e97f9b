// Tokenizers in the format of Google's SentencePiece.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/post_processor.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice::tokenize {

// Makes a tokenizer from `bytes`, a tokenizer.model (the message ModelProto) of the type unigram or
// bpe. Control pieces in a text are treated as text, as in SentencePiece. Errors name the wrong or
// unsupported part. `specials` may set whether bos comes first and eos last; by default bos does in
// Llama's and Gemma's classes, and eos in T5's.
absl::StatusOr<std::unique_ptr<const Tokenizer>> ParseSentencePiece(std::string_view bytes,
                                                                    const SpecialTokens& specials);

}  // namespace sluice::tokenize
