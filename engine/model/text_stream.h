// Generated text in pieces: no piece ends inside a UTF-8 character or inside a possible stop text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/stop_matcher.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// The text of one row. The pieces together are what the row's tokens add to the text of the tokens
// before them, by DecodeBytes, cut before the first stop text. Bytes that are not UTF-8 are passed
// on once they can no longer become a character: unchanged or, if the tokenizer's texts are UTF-8,
// as U+FFFD. The first stop text is the one that ends first, and the longest if several end
// together. Token boundaries make no difference.
//
// Only the last few tokens are decoded at a time, so the time for a token does not grow with the
// text. The text of a token may depend on the tokens before it (a space is dropped at the beginning
// of a text). Later tokens may only complete a character; until then its bytes decode unchanged or
// as U+FFFD. In other cases the pieces may differ from Decode of the whole text.
class TextStream {
 public:
  static constexpr size_t kMostBefore = 8;
  // `tokenizer` outlives it. Stop texts that end within the first `min_tokens` tokens are not
  // looked for. `before` are the tokens before the row; only the last kMostBefore have an effect.
  TextStream(const Tokenizer* tokenizer, std::shared_ptr<const StopTexts> stops, int32_t min_tokens,
             std::span<const int32_t> before = {});

  // Adds a token and appends the text that is complete to `text`. Appends nothing once stopped.
  void Append(int32_t token, std::string* text);
  // Returns whether a stop text is complete.
  bool stopped() const { return stopped_; }
  // Ends the text and appends the withheld text, unless stopped. If bytes are decoded as U+FFFD,
  // these may complete a stop text only here.
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

  // The last tokens. First come the settled tokens, kept because their text affects the following
  // text, beginning with those before the row; then the tokens without text so far, or whose text
  // may still change.
  std::vector<int32_t> window_;
  size_t settled_ = 0;        // the number of settled tokens in the window
  size_t settled_bytes_ = 0;  // the length of their text
  std::string held_;          // settled text that is not shown yet
};

}  // namespace sluice
