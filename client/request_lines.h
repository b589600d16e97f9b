// Reads the lines of a file of requests.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::client {

struct RequestLine {
  int64_t number = 0;  // from 1
  std::string text;
  absl::Status status;               // an error if the line is too long
  std::optional<double> share_read;  // of the whole input, if its size is known
};

// Reads the lines of `in`, which it does not own. Blank lines are skipped but counted. A line has
// at most 16 MiB.
class RequestLines {
 public:
  static constexpr size_t kMaxLineBytes = 16 << 20;

  RequestLines(std::istream* in, std::string name);

  // Returns the next line, or nothing at the end and after a failed read.
  std::optional<RequestLine> Next();
  // Returns the error of the read that ended the lines, or OK.
  absl::Status status() const { return status_; }

 private:
  absl::Status Error(absl::string_view problem) const;
  // Returns false at the end of the input and after a failed read. Skips the part of a line beyond
  // the limit.
  bool Read(std::string* text, bool* too_long);

  std::istream& in_;
  const std::string name_;  // for errors
  int64_t number_ = 0;
  int64_t bytes_read_ = 0;
  int64_t total_bytes_ = 0;  // 0 if not known
  absl::Status status_;
};

}  // namespace sluice::client
