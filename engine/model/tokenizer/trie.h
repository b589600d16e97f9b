// A map of texts, found by common prefixes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace sluice::tokenize {

class Trie {
 public:
  // Adds a text. If it exists, the new value replaces the old one.
  void Add(std::string_view text, int32_t value) {
    uint32_t node = 0;
    for (const char byte : text) {
      const auto [it, added] =
          edges_.try_emplace(Edge(node, byte), static_cast<uint32_t>(values_.size()));
      if (added) values_.push_back(kNone);
      node = it->second;
    }
    values_[node] = value;
  }

  bool empty() const { return edges_.empty(); }

  // Calls visit(bytes, value) for each text that `text` begins with, the shortest first. Returns
  // the number of steps that this took, up to the length of the longest text.
  template <typename Visit>
  size_t Prefixes(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto it = edges_.find(Edge(node, text[i]));
      if (it == edges_.end()) return i + 1;
      node = it->second;
      if (values_[node] != kNone) visit(i + 1, values_[node]);
    }
    return text.size() + 1;
  }

  struct Match {
    size_t bytes = 0;  // 0 if none
    int32_t value = kNone;
    size_t steps = 0;  // the steps of the search
  };
  Match Longest(std::string_view text) const {
    Match longest;
    longest.steps = Prefixes(text, [&](size_t bytes, int32_t value) {
      longest.bytes = bytes;
      longest.value = value;
    });
    return longest;
  }

 private:
  static constexpr int32_t kNone = -1;
  static uint64_t Edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> values_{kNone};
};

}  // namespace sluice::tokenize
