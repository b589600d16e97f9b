#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace sluice {
namespace {

// The form of a character with a given first byte: table 3-7 of the Unicode standard.
struct Form {
  size_t bytes = 0;  // 0 if no character begins so
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

}  // namespace

Utf8Beginning MeasureUtf8(absl::string_view text) {
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

size_t Utf8Length(absl::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Beginning beginning = MeasureUtf8(text.substr(length));
    if (!beginning.complete) break;
    length += beginning.bytes;
  }
  return length;
}

bool IsControl(absl::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;
}

}  // namespace sluice
