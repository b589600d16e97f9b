// Tokenizers as Google's SentencePiece saves them.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/post_processor.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice::tokenize {

// `bytes` is a tokenizer.model (the message ModelProto) of the type unigram or bpe. Control pieces in a
// text are text, as SentencePiece has it. Errors name what is wrong or not supported. bos is put first
// and eos last where `specials` say so; where they do not, bos is by Llama's and Gemma's classes, and eos
// by T5's.
absl::StatusOr<std::unique_ptr<const Tokenizer>> ParseSentencePiece(std::string_view bytes,
                                                                    const SpecialTokens& specials);

}  // namespace sluice::tokenize
