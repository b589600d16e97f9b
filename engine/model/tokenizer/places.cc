#include "engine/model/tokenizer/places.h"

#include <algorithm>

#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

}  // namespace

ByteRange TrimmedRange(std::string_view text, size_t begin) {
  size_t first = 0, end = 0;
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const size_t character = at;
    if (IsSpace(NextCodePoint(text, &at))) continue;
    if (!any) first = character;
    any = true;
    end = at;
  }
  if (!any) return ByteRange();
  return {static_cast<int32_t>(begin + first), static_cast<int32_t>(begin + end)};
}

void Shift(std::vector<ByteRange>* ranges, size_t count, size_t bytes) {
  for (size_t i = ranges->size() - std::min(count, ranges->size()); i < ranges->size(); ++i) {
    ByteRange& range = (*ranges)[i];
    if (range.begin < 0) continue;
    range.begin += static_cast<int32_t>(bytes);
    range.end += static_cast<int32_t>(bytes);
  }
}

void Forget(std::vector<ByteRange>* ranges, size_t count) {
  std::fill(ranges->end() - static_cast<int64_t>(count), ranges->end(), ByteRange());
}

ByteRange RangeOf(std::string_view text, const TracedText& normal, size_t from, size_t to) {
  if (!normal.traced) return ByteRange();
  const auto is_empty = [&](size_t byte) {
    return normal.sources[byte].begin == normal.sources[byte].end;
  };
  while (from < to && is_empty(from)) ++from;
  while (from < to && is_empty(to - 1)) --to;
  if (from >= to) return ByteRange();
  const size_t begin = normal.sources[from].begin, end = normal.sources[to - 1].end;
  if (begin >= end) return ByteRange();
  return TrimmedRange(text.substr(begin, end - begin), begin);
}

std::pair<size_t, size_t> SourcePlaces::Of(SubwordModel::Place place) {
  if (!piece_.located) return {0, 0};
  const size_t begin = before_known_ + SourceBytes(piece_, known_, place.begin);
  const size_t end = before_known_ + SourceBytes(piece_, known_, place.end);
  // A token may begin inside of a character.
  if (place.begin < piece_.text.size() && BeginsCharacter(piece_.text[place.begin])) {
    known_ = place.begin;
    before_known_ = begin;
  }
  return {piece_.begin + begin, piece_.begin + end};
}

}  // namespace sluice::tokenize
