// Makes text from a server safe to show.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::client {

// Turns pieces of text that should be UTF-8 into valid UTF-8. A character that is cut at the end of
// a piece is held back until it is complete. In invalid text, each longest prefix of a
// character, and each byte that starts no character, becomes U+FFFD, as Unicode recommends in
// chapter 3.9.
class Utf8Stream {
 public:
  // With `controls`, control characters pass. Otherwise all but tab and line feed become U+FFFD
  // too, because a terminal would execute them.
  explicit Utf8Stream(bool controls) : controls_(controls) {}

  std::string Append(absl::string_view piece);
  // Ends the stream and returns the held back bytes.
  std::string Finish();

 private:
  std::string Take(bool at_end);

  const bool controls_;
  std::string held_;
};

}  // namespace sluice::client
