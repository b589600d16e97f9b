// Parses a tokenizer.json, which starts with a brace, or a tokenizer.model. Encodes texts with the
// accepted ones.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/stop_matcher.h"
#include "engine/model/text_stream.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/sentencepiece.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

// Spaces, scripts, a combining mark, digits, an invalid UTF-8 byte, and repetitions to merge.
constexpr std::string_view kTexts[] = {"", " ", "abab  Hello, World!\n",
                                       "\xc3\xa9"
                                       "e\xcc\x81 \xe4\xb8\xad 42",
                                       "\xff<s>aaaaaaaaaaaaaaaaaaaaaaaa"};

// Checks that no token is negative and that all tokens can be decoded, together and one by one.
void CheckText(const Tokenizer& tokenizer, std::string_view text) {
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
  if (!ids.ok()) {
    SLUICE_CHECK(!ids.status().message().empty());
    return;
  }
  for (const int32_t id : *ids) SLUICE_CHECK(id >= 0);
  tokenizer.Decode(*ids);
  tokenizer.DecodeBytes(*ids);
  const auto stops = std::make_shared<const StopTexts>(std::span<const std::string>());
  TextStream stream(&tokenizer, stops, /*min_tokens=*/0);
  std::string shown;
  for (const int32_t id : *ids) stream.Append(id, &shown);
  stream.Finish(&shown);
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view file = sluice::fuzz::AsText(data, size);
  const bool json = file.starts_with('{');
  const auto tokenizer = json ? sluice::tokenize::ParseHuggingFace(file, {})
                              : sluice::tokenize::ParseSentencePiece(file, {});
  if (!tokenizer.ok()) {
    sluice::fuzz::CheckRefusal(tokenizer.status());
    return false;
  }
  for (const std::string_view text : sluice::kTexts) sluice::CheckText(**tokenizer, text);
  return true;
}
