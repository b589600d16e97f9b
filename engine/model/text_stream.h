// Generated text in pieces: no piece ends inside a UTF-8 character or inside a possible stop text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/stop_matcher.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// The text of one row. The pieces together are DecodeBytes of all tokens of the row, cut before the
// first stop text. Bytes that are not UTF-8 pass once they can no longer become a character:
// unchanged or, if the tokenizer's texts are UTF-8, as U+FFFD. The first stop text is the one that
// ends first, and the longest of those that end together; the boundaries of tokens make no
// difference.
//
// Only a few of the last tokens are decoded at a time, so that the time for a token does not grow
// with the text. The text of a token may depend on the tokens before it (a space is dropped at the
// beginning of a text). The tokens after it may only complete a character, whose bytes were decoded
// unchanged or as U+FFFD before. Otherwise the pieces need not add up to Decode of the whole.
class TextStream {
 public:
  // `tokenizer` outlives it. Stop texts that end within the first `min_tokens` tokens are not
  // looked for.
  TextStream(const Tokenizer* tokenizer, std::shared_ptr<const StopTexts> stops,
             int32_t min_tokens);

  // Adds a token and appends to `text` what may be shown now. Appends nothing once stopped.
  void Append(int32_t token, std::string* text);
  // Returns whether a stop text is complete.
  bool stopped() const { return stopped_; }
  // Ends the text and appends what was held back, unless stopped. Where bytes are decoded as
  // U+FFFD, these may complete a stop text only here.
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

  // The last tokens: first those whose text is settled, kept because it affects the text that
  // follows, then those that had no text so far or whose text may still change.
  std::vector<int32_t> window_;
  size_t settled_ = 0;        // the number of settled tokens in the window
  size_t settled_bytes_ = 0;  // the length of their text
  std::string held_;          // settled text that is not shown yet
};

}  // namespace sluice
