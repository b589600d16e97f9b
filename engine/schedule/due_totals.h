// The totals of the prompts that are due by a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sluice {

// An ordered set of prompts that stores the sum of each subtree. It is a treap; the heap order is a
// hash of the ticket, so that the depth is logarithmic for any deadlines. Every operation is O(log
// n) and allocates only when the set is larger than ever before. Not thread-safe.
class DueTotals {
 public:
  using Key = std::pair<MonoTime, uint64_t>;  // the deadline and the ticket
  struct Total {
    int64_t sequences = 0;
    int64_t tokens = 0;
  };

  // Insert requires that the key is not in the set; Erase that it is (CHECK).
  void Insert(const Key& key, int64_t tokens);
  void Erase(const Key& key);

  // Returns the total of the prompts whose deadline is at or before `deadline`.
  Total DueBy(MonoTime deadline) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    Key key{};
    int64_t tokens = 0;
    Total total{};  // of the subtree
    int32_t left = kNone, right = kNone;
  };

  static bool Above(const Node& a, const Node& b);
  Total TotalOf(int32_t node) const { return node == kNone ? Total() : nodes_[node].total; }
  void Update(int32_t node);
  int32_t Insert(int32_t root, int32_t node);
  int32_t Erase(int32_t root, const Key& key);
  // Splits a tree into the nodes before `key` and the others.
  std::pair<int32_t, int32_t> Split(int32_t root, const Key& key);
  // Joins two trees. All of `left` is before all of `right`.
  int32_t Join(int32_t left, int32_t right);

  std::vector<Node> nodes_;
  std::vector<int32_t> free_;
  int32_t root_ = kNone;
};

}  // namespace sluice
