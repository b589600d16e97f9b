// The tokens of a tokenizer by id and by text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace sluice::tokenize {

inline constexpr int32_t kNoToken = -1;
inline constexpr int64_t kMaxTokens = int64_t{1} << 22;
inline constexpr size_t kMaxTokenBytes = 65535;

class Vocabulary {
 public:
  // Reads `{"text": id, ...}`. Errors begin with `path`.
  static absl::StatusOr<Vocabulary> Parse(const nlohmann::json* object, const std::string& path);

  // Adds a token. Returns false if the id or text is there already, or over its limit.
  bool Add(std::string text, int32_t id);
  // Works as Add, but a text that is there already gets the new id. Its earlier id keeps the text.
  bool AddOrReplace(std::string text, int32_t id);

  // Returns kNoToken if there is no such token.
  int32_t IdOf(std::string_view text) const;
  // Returns an empty text if there is no such token.
  const std::string& TextOf(int32_t id) const;
  bool Has(int32_t id) const;
  // Returns the number of tokens.
  int64_t size() const { return size_; }
  // Returns one more than the largest id.
  int32_t end() const { return std::ssize(texts_); }
  size_t longest_bytes() const { return longest_bytes_; }

  // Appends the tokens among <0x00> to <0xFF> that stand for the bytes of `text`. Returns false,
  // and appends nothing, if one of them is missing.
  bool AppendBytes(std::string_view text, std::vector<int32_t>* ids) const;

 private:
  absl::flat_hash_map<std::string, int32_t> ids_;
  std::vector<std::string> texts_;
  std::vector<bool> present_;
  int64_t size_ = 0;
  size_t longest_bytes_ = 0;
};

// Returns the byte that a token such as `<0x41>` stands for, or -1 for any other token.
int ByteOf(const std::string& token);

}  // namespace sluice::tokenize
