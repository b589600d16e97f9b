#include "client/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace sluice::client {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";

// The form of a character that begins with some byte: table 3-7 of the Unicode standard.
struct Form {
  size_t bytes = 0;  // 0: no character begins so
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xbf;
};

Form FormOf(uint8_t first) {
  if (first < 0x80) return {1};
  if (first < 0xc2) return {};
  if (first < 0xe0) return {2};
  if (first == 0xe0) return {3, 0xa0, 0xbf};
  if (first == 0xed) return {3, 0x80, 0x9f};
  if (first < 0xf0) return {3};
  if (first == 0xf0) return {4, 0x90, 0xbf};
  if (first < 0xf4) return {4};
  if (first == 0xf4) return {4, 0x80, 0x8f};
  return {};
}

struct Beginning {
  size_t bytes;   // at least 1
  bool complete;  // a character
  bool open;      // may become one
};

// What `text`, which is not empty, begins with.
Beginning Measure(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Form form = FormOf(byte(0));
  if (form.bytes == 0) return {1, false, false};
  const size_t available = std::min(form.bytes, text.size());
  for (size_t i = 1; i < available; ++i) {
    const uint8_t min = i == 1 ? form.second_min : 0x80;
    const uint8_t max = i == 1 ? form.second_max : 0xbf;
    if (byte(i) < min || byte(i) > max) return {i, false, false};
  }
  const bool complete = available == form.bytes;
  return {available, complete, !complete};
}

// C0 and C1 controls and DEL; in UTF-8, C1 is C2 80 to C2 9F.
bool IsControl(absl::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;
}

bool IsObeyed(absl::string_view character) {
  return IsControl(character) && character != "\n" && character != "\t";
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const Beginning beginning = Measure(text);
    if (!beginning.complete) return false;
    text.remove_prefix(beginning.bytes);
  }
  return true;
}

std::string Utf8Stream::Append(absl::string_view piece) {
  held_.append(piece.data(), piece.size());
  return Take(/*at_end=*/false);
}

std::string Utf8Stream::Finish() { return Take(/*at_end=*/true); }

std::string Utf8Stream::Take(bool at_end) {
  std::string shown;
  absl::string_view rest = held_;
  while (!rest.empty()) {
    const Beginning beginning = Measure(rest);
    if (beginning.open && !at_end) break;
    const absl::string_view character = rest.substr(0, beginning.bytes);
    const bool keep = beginning.complete && (controls_ || !IsObeyed(character));
    absl::StrAppend(&shown, keep ? character : kReplacement);
    rest.remove_prefix(beginning.bytes);
  }
  held_ = std::string(rest);
  return shown;
}

}  // namespace sluice::client
