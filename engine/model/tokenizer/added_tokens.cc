#include "engine/model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/unicode.h"
#include "engine/model/tokenizer/vocabulary.h"

namespace sluice::tokenize {
namespace {

constexpr size_t kMaxAddedTokens = 65536;
// The most bytes of one normalized token, in each step of the normalizer, and of all of them. A
// normalizer may replace each character of a token by a thousand.
constexpr size_t kMaxNormalizedBytes = 4 * kMaxAffixBytes;
constexpr size_t kMaxBytesOfAll = size_t{4} << 20;

AddedToken Read(ObjectReader& fields) {
  AddedToken token;
  token.id = fields.Integer("id", 0, kMaxTokens - 1);
  token.content = fields.String("content", kMaxAffixBytes);
  token.special = fields.Boolean("special", false);
  token.single_word = fields.Boolean("single_word", false);
  token.lstrip = fields.Boolean("lstrip", false);
  token.rstrip = fields.Boolean("rstrip", false);
  token.normalized = fields.Boolean("normalized", !token.special);
  return token;
}

// Returns the beginning of the spaces at the end of `text`.
size_t SpacesAtEnd(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t character = begin - 1;
    while (character > 0 && (static_cast<unsigned char>(text[character]) & 0xC0) == 0x80) {
      --character;
    }
    size_t at = character;
    if (!IsSpace(NextCodePoint(text, &at))) break;
    begin = character;
  }
  return begin;
}

// Returns the length of the spaces at the beginning of `text`.
size_t SpacesAtBegin(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    if (!IsSpace(NextCodePoint(text, &at))) break;
    end = at;
  }
  return end;
}

bool BeginsWithWord(std::string_view text) {
  size_t at = 0;
  return !text.empty() && IsWord(NextCodePoint(text, &at));
}

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return IsWord(NextCodePoint(text, &at));
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Parse(const nlohmann::json* list,
                                               const Normalizer& normalizer) {
  AddedTokens added;
  if (list == nullptr || list->is_null()) return added;
  if (!list->is_array() || list->size() > kMaxAddedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("added_tokens is not a list of at most ", kMaxAddedTokens, " tokens"));
  }
  absl::Status status;
  size_t bytes = 0;
  for (size_t i = 0; i < list->size() && status.ok(); ++i) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    const std::string path = absl::StrCat("added_tokens[", i, "]");
    if (!(*list)[i].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is not an object"));
    }
    ObjectReader fields((*list)[i], absl::StrCat(path, "."), &status);
    AddedToken token = Read(fields);
    if (!added.by_id_.try_emplace(token.id, added.tokens_.size()).second) {
      fields.Fail("id", absl::StrCat("is ", token.id, " as another's"));
    }
    added.by_content_.try_emplace(token.content, added.tokens_.size());
    token.found = token.content;
    if (token.normalized) {
      auto original = OriginalText(token.content, /*traced=*/false, kMaxNormalizedBytes);
      auto normal = original.ok() ? normalizer.Apply(*std::move(original)) : std::move(original);
      if (!normal.ok()) {
        fields.Fail("content", absl::StrCat("is refused: ", normal.status().message()));
      }
      token.found = normal.ok() ? std::move(normal->text) : "";
    }
    bytes += token.found.size();
    if (bytes > kMaxBytesOfAll) {
      fields.Fail("content", absl::StrCat("brings the tokens to more than ", kMaxBytesOfAll,
                                          " bytes after the normalizer"));
    }
    if (!token.found.empty()) {
      (token.normalized ? added.normalized_ : added.raw_).Add(token.found, i);
    }
    added.longest_bytes_ =
        std::max({added.longest_bytes_, std::ssize(token.content), std::ssize(token.found)});
    added.tokens_.push_back(std::move(token));
  }
  SLUICE_RETURN_IF_ERROR(status);
  return added;
}

const AddedToken* AddedTokens::Get(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

int32_t AddedTokens::IdOf(std::string_view content) const {
  const auto it = by_content_.find(absl::string_view(content.data(), content.size()));
  return it == by_content_.end() ? kNoToken : tokens_[it->second].id;
}

absl::Status AddedTokens::Find(const Trie& trie, std::string_view text, Visit visit) const {
  size_t done = 0;
  InterruptionCounter counter;
  for (size_t at = trie.empty() ? text.size() : 0; at < text.size();) {
    const Trie::Match match = trie.Longest(text.substr(at));
    SLUICE_RETURN_IF_ERROR(counter.Check(match.steps));
    if (match.bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[match.value];
    size_t begin = at;
    size_t end = at + match.bytes;
    at = end;
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || BeginsWithWord(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = done + SpacesAtEnd(text.substr(done, begin - done));
    if (token.rstrip) end += SpacesAtBegin(text.substr(end));
    if (done < begin) {
      SLUICE_RETURN_IF_ERROR(visit({text.substr(done, begin - done), kNoToken}));
    }
    SLUICE_RETURN_IF_ERROR(visit({text.substr(begin, end - begin), token.id}));
    done = end;
    at = std::max(at, end);
  }
  return done < text.size() ? visit({text.substr(done), kNoToken}) : absl::OkStatus();
}

}  // namespace sluice::tokenize
