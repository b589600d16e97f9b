// Finds the first of several texts in a stream of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// By the method of Knuth, Morris and Pratt, for each text alone: amortised a constant time per byte and
// text, whatever the texts repeat.
class StopMatcher {
 public:
  // `stops` are not empty and outlive it.
  explicit StopMatcher(std::span<const std::string> stops);

  // Adds a byte. The length of the longest stop that ends with it; 0: none does.
  size_t Add(char byte);
  // Of the bytes added, how many at their end may be the beginning of a stop that is not complete.
  size_t partial() const;

 private:
  struct Stop {
    const std::string* text;
    // For each length of a prefix: the longest proper prefix that it ends with.
    std::vector<uint32_t> borders;
    size_t matched = 0;  // bytes of the longest proper prefix that the stream ends with
  };
  static std::vector<uint32_t> BordersOf(const std::string& text);

  std::vector<Stop> stops_;
};

}  // namespace sluice
