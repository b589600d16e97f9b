// SentencePiece's table of replacements, compiled into a double array (of the darts-clone library).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::tokenize {

class Charsmap {
 public:
  // `blob`: the array's size in bytes (32 bits, little-endian), the array, then the replacements, each
  // ended by a zero byte. InvalidArgument where a size is wrong; a walk that leaves the array ends.
  static absl::StatusOr<Charsmap> Parse(std::string_view blob);

  struct Match {
    size_t bytes;  // of the text, from its beginning
    std::string_view replacement;
  };
  // The longest entry that `text` begins with.
  std::optional<Match> Longest(std::string_view text) const;
  // The shortest.
  std::optional<Match> Shortest(std::string_view text) const;

 private:
  std::optional<Match> Walk(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

// As Hugging Face's tokenizers apply a table: to a grapheme of less than six bytes as a whole where an
// entry begins it, otherwise to each of its characters.
std::string ReplaceGraphemes(const Charsmap& charsmap, std::string_view text);

}  // namespace sluice::tokenize
