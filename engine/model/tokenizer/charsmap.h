// SentencePiece's table of replacements, compiled into a double array (of the library darts-clone).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::tokenize {

class Charsmap {
 public:
  // `blob` has the size of the array in bytes (32 bits, little-endian), the array, then the
  // replacements, each ended by a zero byte. Returns InvalidArgument if a size is wrong. A walk
  // that leaves the array ends.
  static absl::StatusOr<Charsmap> Parse(std::string_view blob);

  struct Match {
    size_t bytes;  // from the beginning of the text
    std::string_view replacement;
  };
  // Returns the longest entry that `text` begins with.
  std::optional<Match> Longest(std::string_view text) const;
  // Returns the shortest entry that `text` begins with.
  std::optional<Match> Shortest(std::string_view text) const;

 private:
  std::optional<Match> Walk(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

// Applies a table as Hugging Face's library `tokenizers` does: to a whole grapheme of less than six
// bytes if an entry is a prefix of it, otherwise to each of its characters. Calls `replace` with
// each part of the text, in order, and the text that takes its place.
absl::Status ReplaceGraphemes(
    const Charsmap& charsmap, std::string_view text,
    absl::FunctionRef<void(std::string_view part, std::string_view made)> replace);

}  // namespace sluice::tokenize
