// A search for the first of several texts in a stream of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// The texts, prepared once for all streams that are searched for them.
class StopTexts {
 public:
  // Requires that no text is empty.
  explicit StopTexts(std::span<const std::string> texts);

  size_t count() const { return stops_.size(); }
  const std::string& text(size_t i) const { return stops_[i].text; }
  // Returns, for each length of a prefix, the length of the longest proper prefix that it ends
  // with.
  std::span<const uint32_t> borders(size_t i) const { return stops_[i].borders; }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> borders;
  };
  std::vector<Stop> stops_;
};

// Searches by the method of Knuth, Morris and Pratt, for each text separately. The amortised time
// per byte and text is constant, even if the texts repeat themselves.
class StopMatcher {
 public:
  explicit StopMatcher(std::shared_ptr<const StopTexts> stops);

  // Adds a byte and returns the length of the longest stop text that ends with it, or 0 if none
  // does.
  size_t Add(char byte);
  // Returns how many of the last bytes may be the beginning of an incomplete stop text.
  size_t partial() const;

 private:
  std::shared_ptr<const StopTexts> stops_;
  // By text: the length of the longest proper prefix that the stream ends with.
  std::vector<uint32_t> matched_;
};

}  // namespace sluice
