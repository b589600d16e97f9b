// Tokens that are found in a text before it is split into words: special tokens and those that a
// user added.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/tokenizer/normalizer.h"
#include "engine/model/tokenizer/trie.h"

namespace sluice::tokenize {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string found;         // as in texts: the content, after the normalizer if `normalized`
  bool special = false;      // whether it decodes to nothing
  bool single_word = false;  // is not found inside a word
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces after it
  bool normalized = true;    // is found in normalized text
};

class AddedTokens {
 public:
  // Reads the list `added_tokens` of a tokenizer.json; nullptr means an empty one.
  static absl::StatusOr<AddedTokens> Parse(const nlohmann::json* list,
                                           const Normalizer& normalizer);

  // A part of a text: a token, or text between tokens, whose `id` is kNoToken.
  struct TextSpan {
    std::string_view text;
    int32_t id;
  };
  // FindRaw finds the tokens with `normalized` false in an unchanged text; FindNormalized finds the
  // others in a normalized text. The leftmost token is found first, and the longest if several
  // begin there. They call `visit` for each part of the text, in order, and end with its first
  // error.
  using Visit = absl::FunctionRef<absl::Status(const TextSpan& part)>;
  absl::Status FindRaw(std::string_view text, Visit visit) const { return Find(raw_, text, visit); }
  absl::Status FindNormalized(std::string_view text, Visit visit) const {
    return Find(normalized_, text, visit);
  }

  // Returns nullptr if the id does not belong to an added token.
  const AddedToken* Get(int32_t id) const;
  int64_t longest_bytes() const { return longest_bytes_; }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

  // Returns kNoToken if there is no such token.
  int32_t IdOf(std::string_view content) const;

 private:
  absl::Status Find(const Trie& trie, std::string_view text, Visit visit) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<int32_t, size_t> by_id_;  // values are indices of tokens_
  absl::flat_hash_map<std::string, size_t> by_content_;
  Trie raw_;  // values are indices of tokens_
  Trie normalized_;
  int64_t longest_bytes_ = 0;
};

}  // namespace sluice::tokenize
