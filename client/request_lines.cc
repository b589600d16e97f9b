#include "client/request_lines.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace sluice::client {
namespace {

// 0 for a pipe.
int64_t SizeOf(std::istream& in) {
  const auto start = in.tellg();
  if (start < 0 || !in.seekg(0, std::ios::end)) {
    in.clear();
    return 0;
  }
  const auto end = in.tellg();
  in.seekg(start);
  return static_cast<int64_t>(end - start);
}

}  // namespace

RequestLines::RequestLines(std::istream* in, std::string name)
    : in_(*in), name_(std::move(name)), total_bytes_(SizeOf(*in)) {}

std::optional<RequestLine> RequestLines::Next() {
  RequestLine line;
  bool too_long = false;
  while (Read(&line.text, &too_long)) {
    line.number = ++number_;
    if (too_long) {
      line.text.clear();
      line.status = absl::InvalidArgumentError(
          absl::StrCat(name_, ":", number_, ": longer than ", kMaxLineBytes, " bytes"));
    } else if (absl::StripAsciiWhitespace(line.text).empty()) {
      continue;
    }
    if (total_bytes_ > 0) {
      line.share_read = static_cast<double>(bytes_read_) / static_cast<double>(total_bytes_);
    }
    return line;
  }
  return std::nullopt;
}

bool RequestLines::Read(std::string* text, bool* too_long) {
  text->clear();
  *too_long = false;
  std::streambuf& buffer = *in_.rdbuf();
  constexpr int kEnd = std::char_traits<char>::eof();
  int c = buffer.sbumpc();
  if (c == kEnd) return false;
  for (; c != kEnd && c != '\n'; c = buffer.sbumpc()) {
    ++bytes_read_;
    if (text->size() < kMaxLineBytes) {
      text->push_back(static_cast<char>(c));
    } else {
      *too_long = true;
    }
  }
  ++bytes_read_;
  return true;
}

}  // namespace sluice::client
