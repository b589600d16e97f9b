// Finds the first of several texts in a stream of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// The texts, prepared once for all streams in which they are looked for.
class StopTexts {
 public:
  // None is empty.
  explicit StopTexts(std::span<const std::string> texts);

  size_t count() const { return stops_.size(); }
  const std::string& text(size_t i) const { return stops_[i].text; }
  // For each length of a prefix: the longest proper prefix that it ends with.
  std::span<const uint32_t> borders(size_t i) const { return stops_[i].borders; }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> borders;
  };
  std::vector<Stop> stops_;
};

// By the method of Knuth, Morris and Pratt, for each text alone: amortised a constant time per byte and
// text, whatever the texts repeat.
class StopMatcher {
 public:
  explicit StopMatcher(std::shared_ptr<const StopTexts> stops);

  // Adds a byte. The length of the longest stop that ends with it; 0: none does.
  size_t Add(char byte);
  // Of the bytes added, how many at their end may be the beginning of a stop that is not complete.
  size_t partial() const;

 private:
  std::shared_ptr<const StopTexts> stops_;
  std::vector<uint32_t> matched_;  // bytes of the longest proper prefix that the stream ends with
};

}  // namespace sluice
