// Encodes long texts with the tokenizers in the corpus of the target `tokenizer`, and limits the
// work. The work is measured in checks for an interruption, one in some thousand short steps. Their
// number must grow at most linearly with the bytes of the text.
//
// An input consists of a tokenizer's number, a factor for Times, the most tokens, and the text.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/interruption.h"
#include "base/stable_hash.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/sentencepiece.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr size_t kMostBytes = 16 << 10;
// The most checks per KiB of text: one for each piece, which may be a single byte, plus a margin.
constexpr int64_t kChecksOfKibibyte = 1024 + 32;
constexpr int64_t kFirstChecks = 16;

using Tokenizers = std::vector<std::unique_ptr<const Tokenizer>>;

Tokenizers ReadTokenizers() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(SLUICE_SOURCE_DIR "/tests/fuzz/corpus/tokenizer")) {
    if (entry.path().filename().string().starts_with("seed_")) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  Tokenizers tokenizers;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    auto tokenizer = text.starts_with('{') ? tokenize::ParseHuggingFace(text, {})
                                           : tokenize::ParseSentencePiece(text, {});
    if (tokenizer.ok()) tokenizers.push_back(*std::move(tokenizer));
  }
  SLUICE_CHECK(tokenizers.size() > 3);
  return tokenizers;
}

// Returns how often a text is repeated: usually up to four times, to try many texts. One input in
// 256 is repeated up to 32,768 times, to see how the work grows. A hash chooses it, because the
// fuzzer would otherwise soon try only long texts: it keeps inputs with new loop counts.
size_t Times(std::string_view input) {
  StableHash hash;
  hash.Add(input);
  return hash.value() >> 56 == 0 ? size_t{1} << (hash.value() % 16)
                                 : 1 + static_cast<unsigned char>(input[1]) % 4;
}

// Returns whether the text was encoded.
bool Encode(const Tokenizer& tokenizer, const std::string& text, int64_t most) {
  const int64_t kibibytes = 1 + static_cast<int64_t>(text.size() >> 10);
  const int64_t bound = kFirstChecks + kibibytes * kChecksOfKibibyte;
  int64_t checks = 0;
  const Interruptible scope(
      [&] { return ++checks > bound ? absl::AbortedError("too much work") : absl::OkStatus(); });
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.EncodeBare(text, most);
  SLUICE_CHECK(!absl::IsAborted(ids.status()));
  // An unknown character becomes the three bytes of U+FFFD, and each may be a token.
  if (ids.ok()) SLUICE_CHECK(std::ssize(*ids) <= 4 * static_cast<int64_t>(text.size()) + 16);
  if (!ids.ok()) SLUICE_CHECK(!ids.status().message().empty());
  return ids.ok();
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  static const auto* const tokenizers = new sluice::Tokenizers(sluice::ReadTokenizers());
  if (size < 3) return false;
  const sluice::Tokenizer& tokenizer = *(*tokenizers)[data[0] % tokenizers->size()];
  const std::string_view unit = sluice::fuzz::AsText(data + 3, size - 3);
  size_t times = sluice::Times(sluice::fuzz::AsText(data, size));
  if (!unit.empty()) times = std::min(times, 1 + sluice::kMostBytes / unit.size());
  std::string text;
  text.reserve(times * unit.size());
  for (size_t i = 0; i < times; ++i) text += unit;
  return sluice::Encode(tokenizer, text, data[2] == 0xff ? 1 << 20 : int64_t{data[2]} * 16);
}
