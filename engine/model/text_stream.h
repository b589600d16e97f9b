// Generated text, piece by piece: no piece ends inside a UTF-8 character or inside what may become a
// stop text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/tokenizer.h"

namespace sluice {

// Of one row. The pieces together are Decode of all its tokens, cut before the first stop text; bytes
// that are no UTF-8 pass through as they are, once they can no longer become a character.
class TextStream {
 public:
  // `tokenizer` and `stops` outlive it. Stops are not looked for in what the first `min_tokens` tokens
  // end.
  TextStream(const Tokenizer* tokenizer, std::span<const std::string> stops, int32_t min_tokens);

  // Adds a token and appends to `text` what may be shown now. Nothing more once stopped.
  void Append(int32_t token, std::string* text);
  // A stop text is complete.
  bool stopped() const;
  // The end: appends what was held back, unless stopped.
  void Finish(std::string* text);
};

}  // namespace sluice
