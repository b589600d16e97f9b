// Tokens that are found in a text before it is split into words: special ones and those that a user
// added.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/model/tokenizer/normalizer.h"
#include "engine/model/tokenizer/trie.h"

namespace sluice::tokenize {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // decodes to nothing
  bool single_word = false;  // not inside of a word
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // and behind it
  bool normalized = true;    // is looked for in normalized text
};

class AddedTokens {
 public:
  // The list `added_tokens` of a tokenizer.json; nullptr: none.
  static absl::StatusOr<AddedTokens> Parse(const nlohmann::json* list,
                                           const Normalizer& normalizer);

  // A special token of the vocabulary that the list does not have.
  void AddSpecial(int32_t id, std::string content);

  // A part of a text: a token, or text between tokens (`id` is kNoToken).
  struct Part {
    std::string_view text;
    int32_t id;
  };
  // In a text as it came: those that are not normalized. In normalized text: the others. Leftmost first,
  // then longest.
  std::vector<Part> FindRaw(std::string_view text) const { return Find(raw_, text); }
  std::vector<Part> FindNormalized(std::string_view text) const { return Find(normalized_, text); }

  // nullptr: not an added token.
  const AddedToken* Get(int32_t id) const;
  // kNoToken: there is none.
  int32_t IdOf(std::string_view content) const;

 private:
  std::vector<Part> Find(const Trie& trie, std::string_view text) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<int32_t, size_t> by_id_;
  Trie raw_;  // values are indices of tokens_
  Trie normalized_;
};

}  // namespace sluice::tokenize
