#include "client/request_lines.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace sluice::client {
namespace {

// Returns the number of bytes in the input, or 0 for a pipe.
int64_t SizeOf(std::istream& in) {
  const auto start = in.tellg();
  if (start < 0 || !in.seekg(0, std::ios::end)) {
    in.clear();
    return 0;
  }
  const auto end = in.tellg();
  in.seekg(start);
  return end - start;
}

}  // namespace

RequestLines::RequestLines(std::istream* in, std::string name)
    : in_(*in), name_(std::move(name)), total_bytes_(SizeOf(*in)) {}

std::optional<RequestLine> RequestLines::Next() {
  RequestLine line;
  bool too_long = false;
  while (Read(&line.text, &too_long)) {
    line.number = ++number_;
    if (total_bytes_ > 0) {
      line.share_read = static_cast<double>(bytes_read_) / static_cast<double>(total_bytes_);
    }
    if (too_long) {
      line.status = Error(absl::StrCat("longer than ", kMaxLineBytes, " bytes"));
    } else if (absl::StripAsciiWhitespace(line.text).empty()) {
      continue;
    }
    return line;
  }
  return std::nullopt;
}

absl::Status RequestLines::Error(absl::string_view problem) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ":", number_, ": ", problem));
}

bool RequestLines::Read(std::string* text, bool* too_long) {
  text->clear();
  *too_long = false;
  if (!in_.good()) return false;
  char c;
  while (in_.get(c)) {
    ++bytes_read_;
    if (c == '\n') return true;
    if (text->size() < kMaxLineBytes) {
      text->push_back(c);
    } else {
      *too_long = true;
    }
  }
  if (in_.bad()) {
    ++number_;
    status_ = Error("cannot be read");
    return false;
  }
  return !text->empty();  // the last line may have no line break
}

}  // namespace sluice::client
