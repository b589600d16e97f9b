#include "loadtest/load/answers.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace sluice::load {
namespace {

constexpr absl::string_view kHeading = "sluice-load answers 1";

uint64_t HashText(const std::string& text, uint64_t hash) {
  // The size is hashed to distinguish "ab","c" from "a","bc".
  const uint64_t size = text.size();
  return HashBytes(text.data(), text.size(), HashBytes(&size, sizeof size, hash));
}

}  // namespace

uint64_t HashAnswer(const inference::ModelInferResponse& response) {
  uint64_t hash = HashBytes(nullptr, 0);
  for (const auto& output : response.outputs()) {
    hash = HashText(output.datatype(), HashText(output.name(), hash));
    for (int64_t size : output.shape()) hash = HashBytes(&size, sizeof size, hash);
    if (output.has_contents()) hash = HashText(output.contents().SerializeAsString(), hash);
  }
  for (const std::string& raw : response.raw_output_contents()) hash = HashText(raw, hash);
  return std::max<uint64_t>(hash, 1);  // 0 means that there is no answer
}

absl::StatusOr<std::unique_ptr<AnswerBook>> AnswerBook::Parse(absl::string_view text) {
  auto book = std::make_unique<AnswerBook>();
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (number == 1) {
      if (line != kHeading) {
        return absl::InvalidArgumentError(absl::StrCat("line 1 must be `", kHeading, "`"));
      }
      continue;
    }
    if (line.empty()) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    uint64_t key = 0;
    uint64_t hash = 0;
    if (words.size() != 2 || !absl::SimpleHexAtoi(words[0], &key) ||
        !absl::SimpleHexAtoi(words[1], &hash) || hash == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " must be two hexadecimal numbers"));
    }
    book->baseline_[key] = hash;
  }
  return book;
}

void AnswerBook::Prepare(const std::vector<Payload>& payloads) {
  std::vector<std::atomic<uint64_t>> grown(payloads.size());
  for (size_t i = 0; i < hashes_.size(); ++i) grown[i] = hashes_[i].load();
  for (size_t i = hashes_.size(); i < payloads.size(); ++i) {
    keys_.push_back(payloads[i].key);
    const auto found = baseline_.find(payloads[i].key);
    if (found == baseline_.end()) continue;
    grown[i] = found->second;
    ++matched_;
  }
  hashes_.swap(grown);
}

bool AnswerBook::Agrees(uint32_t payload, uint64_t hash) {
  uint64_t before = 0;
  return hashes_[payload].compare_exchange_strong(before, hash) || before == hash;
}

std::string AnswerBook::Text() const {
  absl::flat_hash_map<uint64_t, uint64_t> all = baseline_;
  for (size_t i = 0; i < hashes_.size(); ++i) {
    if (const uint64_t hash = hashes_[i].load(); hash != 0) all[keys_[i]] = hash;
  }
  std::vector<std::pair<uint64_t, uint64_t>> sorted(all.begin(), all.end());
  std::sort(sorted.begin(), sorted.end());
  std::string text = absl::StrCat(kHeading, "\n");
  for (const auto& [key, hash] : sorted) absl::StrAppendFormat(&text, "%016x %016x\n", key, hash);
  return text;
}

}  // namespace sluice::load
