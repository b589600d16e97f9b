#include "engine/model/tokenizer/places.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

constexpr int64_t kBytesOfStart = sizeof(std::pair<size_t, size_t>);

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

absl::StatusOr<PlaceMap> PlaceMap::Make(std::string_view text, std::string_view normal,
                                        const Normalizer& normalizer) {
  PlaceMap map(text);
  SLUICE_RETURN_IF_ERROR(map.Cut(normal, normalizer, /*with_marks=*/false));
  if (map.starts_.empty()) SLUICE_RETURN_IF_ERROR(map.Cut(normal, normalizer, /*with_marks=*/true));
  return map;
}

absl::Status PlaceMap::Cut(std::string_view normal, const Normalizer& normalizer, bool with_marks) {
  std::vector<std::pair<size_t, size_t>> starts;
  size_t made = 0;
  for (size_t at = 0; at < text_.size();) {
    const size_t begin = at;
    NextCodePoint(text_, &at);
    for (size_t next = at;
         with_marks && next < text_.size() && IsMark(NextCodePoint(text_, &next));) {
      at = next;
    }
    if (starts.size() == starts.capacity()) {  // the old and the new list exist at the same time
      SLUICE_RETURN_IF_ERROR(memory_.Hold(3 * std::ssize(starts) * kBytesOfStart));
    }
    starts.emplace_back(begin, made);
    SLUICE_ASSIGN_OR_RETURN(const OwnedText part,
                            normalizer.Apply(text_.substr(begin, at - begin)));
    if (!normal.substr(std::min(made, normal.size())).starts_with(part.text)) {
      return absl::OkStatus();
    }
    made += part.text.size();
  }
  if (made != normal.size()) return absl::OkStatus();
  starts.emplace_back(text_.size(), normal.size());
  starts_ = std::move(starts);
  return absl::OkStatus();
}

ByteRange PlaceMap::Of(size_t from, size_t to) const {
  if (starts_.empty() || from >= to) return ByteRange();
  const auto by_normal = [](size_t byte, const auto& start) { return byte < start.second; };
  const auto first = std::upper_bound(starts_.begin(), starts_.end(), from, by_normal) - 1;
  // Characters that became nothing do not belong to the part before them.
  auto last = std::upper_bound(starts_.begin(), starts_.end(), to - 1, by_normal) - 1;
  if (last + 1 == starts_.end()) return ByteRange();
  const size_t begin = first->first;
  return TrimmedRange(text_.substr(begin, (last + 1)->first - begin), begin);
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
