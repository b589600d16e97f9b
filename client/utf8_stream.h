// Text of a server, made fit to be shown.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::client {

// Makes UTF-8 of pieces of what should be UTF-8. A character may be cut by the end of a piece: it
// is held back until it is complete. Of bytes that are none, each longest beginning of a character
// (or byte that begins none) becomes U+FFFD, as Unicode recommends in chapter 3.9.
class Utf8Stream {
 public:
  // `controls`: control characters pass. Otherwise those but tab and line feed become U+FFFD as
  // well, since a terminal would obey them.
  explicit Utf8Stream(bool controls) : controls_(controls) {}

  std::string Append(absl::string_view piece);
  // The end: what was held back.
  std::string Finish();

 private:
  std::string Take(bool at_end);

  const bool controls_;
  std::string held_;
};

}  // namespace sluice::client
