#include "engine/model/stop_matcher.h"

#include <algorithm>

namespace sluice {

std::vector<uint32_t> StopMatcher::BordersOf(const std::string& text) {
  std::vector<uint32_t> borders(text.size() + 1, 0);
  for (size_t end = 1; end < text.size(); ++end) {
    uint32_t border = borders[end];
    while (border > 0 && text[border] != text[end]) border = borders[border];
    borders[end + 1] = border + (text[border] == text[end] ? 1 : 0);
  }
  return borders;
}

StopMatcher::StopMatcher(std::span<const std::string> stops) {
  stops_.reserve(stops.size());
  for (const std::string& text : stops) {
    stops_.push_back({.text = &text, .borders = BordersOf(text)});
  }
}

size_t StopMatcher::Add(char byte) {
  size_t longest = 0;
  for (Stop& stop : stops_) {
    while (stop.matched > 0 && (*stop.text)[stop.matched] != byte) {
      stop.matched = stop.borders[stop.matched];
    }
    if ((*stop.text)[stop.matched] == byte) ++stop.matched;
    if (stop.matched < stop.text->size()) continue;
    longest = std::max(longest, stop.matched);
    stop.matched = stop.borders[stop.matched];
  }
  return longest;
}

size_t StopMatcher::partial() const {
  size_t longest = 0;
  for (const Stop& stop : stops_) longest = std::max(longest, stop.matched);
  return longest;
}

}  // namespace sluice
