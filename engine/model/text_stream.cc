#include "engine/model/text_stream.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/model/tokenizer/unicode.h"

namespace sluice {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
// A character has at most four bytes. If more than this many tokens have no settled text, the first
// of them is not part of an incomplete character.
constexpr size_t kMaxUnsettled = 3;
// The most tokens in a row that have no text of their own: spaces, which a decoder drops at the
// beginning of a text.
constexpr size_t kMaxSettled = TextStream::kMostBefore;

// Returns the length of the characters that begin with `lead`, or 0 if none does.
size_t CharacterBytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

// Returns whether `second` may follow `lead` (the Unicode Standard, table 3-7: no overlong forms,
// no surrogates, nothing above U+10FFFF).
bool Follows(unsigned char lead, unsigned char second) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

// Returns the number of bytes at the end of `text` that more bytes may complete to a character.
size_t IncompleteTail(std::string_view text) {
  for (size_t tail = 1; tail <= std::min<size_t>(3, text.size()); ++tail) {
    const auto lead = static_cast<unsigned char>(text[text.size() - tail]);
    if ((lead & 0xC0) == 0x80) continue;
    const bool begun =
        tail == 1 || Follows(lead, static_cast<unsigned char>(text[text.size() - tail + 1]));
    return begun && CharacterBytes(lead) > tail ? tail : 0;
  }
  return 0;
}

std::string_view From(const std::string& text, size_t begin) {
  return std::string_view(text).substr(std::min(begin, text.size()));
}

}  // namespace

TextStream::TextStream(const Tokenizer* tokenizer, std::shared_ptr<const StopTexts> stops,
                       int32_t min_tokens, std::span<const int32_t> before)
    : tokenizer_(tokenizer), stops_(std::move(stops)), min_tokens_(min_tokens) {
  const auto last = before.last(std::min(before.size(), kMaxSettled));
  window_.assign(last.begin(), last.end());
  settled_ = window_.size();
  Settle(settled_);
  // The row would change the text before it by completing a character.
  if (tokenizer_->DecodeBytes(window_).ends_with(kReplacement)) {
    window_.clear();
    settled_ = settled_bytes_ = 0;
  }
}

void TextStream::Append(int32_t token, std::string* text) {
  if (stopped_) return;
  ++tokens_;
  window_.push_back(token);
  const std::string decoded = tokenizer_->DecodeBytes(window_);
  const std::string_view fresh = From(decoded, settled_bytes_);
  const bool crowded = window_.size() - settled_ > kMaxUnsettled;
  if (fresh.empty()) {
    // A model may generate tokens without text endlessly; only a few of them are kept.
    if (crowded) window_.pop_back();
    return;
  }
  if (!fresh.ends_with(kReplacement)) {
    Hold(fresh);
    Settle(window_.size());
  } else if (crowded) {
    const std::string first = tokenizer_->DecodeBytes(std::span(window_).first(settled_ + 1));
    Hold(From(first, settled_bytes_));
    Settle(settled_ + 1);
  }
  Show(Showable(), text);
}

void TextStream::Finish(std::string* text) {
  if (stopped_) return;
  Hold(From(tokenizer_->DecodeBytes(window_), settled_bytes_));
  Settle(window_.size());
  Show(held_.size(), text);
}

// Settles the first `tokens` tokens of the window. Keeps the fewest settled tokens that decode to
// some text. Otherwise the next text would be decoded as the beginning of a text.
void TextStream::Settle(size_t tokens) {
  size_t begin = settled_;
  const auto size = [&] {
    return tokenizer_->DecodeBytes(std::span(window_).subspan(begin, tokens - begin)).size();
  };
  settled_bytes_ = size();
  while (settled_bytes_ == 0 && begin > 0 && tokens - begin < kMaxSettled) {
    --begin;
    settled_bytes_ = size();
  }
  window_.erase(window_.begin(), window_.begin() + begin);
  settled_ = tokens - begin;
}

// Holds text, up to a stop text.
void TextStream::Hold(std::string_view fresh) {
  for (const char byte : fresh) {
    held_.push_back(byte);
    const size_t stop = stops_.Add(byte);
    if (stop == 0 || tokens_ <= min_tokens_) continue;
    held_.resize(held_.size() - stop);
    stopped_ = true;
    return;
  }
}

size_t TextStream::Showable() const {
  if (stopped_) return held_.size();
  const size_t sure = held_.size() - stops_.partial();
  return sure - IncompleteTail(std::string_view(held_).substr(0, sure));
}

void TextStream::Show(size_t bytes, std::string* text) {
  const std::string_view shown = std::string_view(held_).substr(0, bytes);
  if (tokenizer_->TextIsUtf8()) {
    *text += tokenize::ToValidUtf8(shown);
  } else {
    *text += shown;
  }
  held_.erase(0, bytes);
}

}  // namespace sluice
