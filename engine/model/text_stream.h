// Generated text, piece by piece: no piece ends inside a UTF-8 character or inside what may become a
// stop text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/stop_matcher.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// Of one row. The pieces together are DecodeBytes of all its tokens, cut before the first stop text; bytes
// that are no UTF-8 pass through, once they can no longer become a character, as they are or, where the
// tokenizer's texts are UTF-8, as U+FFFD. The first
// stop text is the one that ends first, and of those that end together the longest; where tokens are
// cut makes no difference.
//
// Decodes only a few of the last tokens at a time, so the time for a token does not grow with the text.
// A token's text may depend on the tokens before it (a space dropped where a text begins). Those after
// it may only complete a character, whose bytes until then were decoded as they are or as U+FFFD.
// Beyond that, pieces need not add up to what Decode says of the whole.
class TextStream {
 public:
  // `tokenizer` outlives it. Stops are not looked for in what the first `min_tokens` tokens end.
  TextStream(const Tokenizer* tokenizer, std::shared_ptr<const StopTexts> stops,
             int32_t min_tokens);

  // Adds a token and appends to `text` what may be shown now. Nothing more once stopped.
  void Append(int32_t token, std::string* text);
  // A stop text is complete.
  bool stopped() const { return stopped_; }
  // The end: appends what was held back, unless stopped. Where bytes are decoded as U+FFFD, these may
  // complete a stop text only here.
  void Finish(std::string* text);

 private:
  void Settle(size_t tokens);
  void Hold(std::string_view fresh);
  size_t Showable() const;
  void Show(size_t bytes, std::string* text);

  const Tokenizer* tokenizer_;
  StopMatcher stops_;
  int32_t min_tokens_;
  int32_t tokens_ = 0;
  bool stopped_ = false;

  // The last tokens: first those whose text is settled, kept because it bears on what follows, then
  // those that had none so far or whose text may change yet.
  std::vector<int32_t> window_;
  size_t settled_ = 0;        // tokens of the first kind
  size_t settled_bytes_ = 0;  // of their text
  std::string held_;          // settled text that was not shown
};

}  // namespace sluice
