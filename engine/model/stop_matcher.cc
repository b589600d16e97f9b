#include "engine/model/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

std::vector<uint32_t> BordersOf(const std::string& text) {
  std::vector<uint32_t> borders(text.size() + 1, 0);
  for (size_t end = 1; end < text.size(); ++end) {
    uint32_t border = borders[end];
    while (border > 0 && text[border] != text[end]) border = borders[border];
    borders[end + 1] = border + (text[border] == text[end] ? 1 : 0);
  }
  return borders;
}

}  // namespace

StopTexts::StopTexts(std::span<const std::string> texts) {
  stops_.reserve(texts.size());
  for (const std::string& text : texts)
    stops_.push_back({.text = text, .borders = BordersOf(text)});
}

StopMatcher::StopMatcher(std::shared_ptr<const StopTexts> stops)
    : stops_(std::move(stops)), matched_(stops_->count(), 0) {}

size_t StopMatcher::Add(char byte) {
  uint32_t longest = 0;
  for (size_t i = 0; i < matched_.size(); ++i) {
    const std::string& text = stops_->text(i);
    const std::span<const uint32_t> borders = stops_->borders(i);
    uint32_t& matched = matched_[i];
    while (matched > 0 && text[matched] != byte) matched = borders[matched];
    if (text[matched] == byte) ++matched;
    if (matched < text.size()) continue;
    longest = std::max(longest, matched);
    matched = borders[matched];
  }
  return longest;
}

size_t StopMatcher::partial() const {
  return matched_.empty() ? 0 : *std::max_element(matched_.begin(), matched_.end());
}

}  // namespace sluice
