// The loop of byte pair encoding: merges the best pair of neighbours until no pair can merge.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "base/work_memory.h"

namespace sluice::tokenize {

struct Symbol {
  int32_t id = 0;
  uint32_t begin = 0;  // bytes of the piece
  uint32_t bytes = 0;  // 0 if merged into the one before it
  int32_t previous = -1;
  int32_t next = -1;
};

// Returns the most memory that the symbols of a piece take: one for each byte, in a list whose old
// and new buffers exist at the same time when it grows.
inline int64_t MemoryOfSymbols(std::string_view piece) {
  return 3 * std::ssize(piece) * static_cast<int64_t>(sizeof(Symbol));
}

struct Merge {
  double cost = 0;  // the lowest merges first; the leftmost if equal
  int32_t id = 0;   // of the merged symbol
};

// `find(left, right)` returns the merge of two symbols, if any. Takes O(n log n) with a queue of
// candidates. A candidate that an earlier merge invalidated is dropped when it is dequeued.
template <typename Find>
class MergeLoop {
 public:
  MergeLoop(std::vector<Symbol>* symbols, Find find) : symbols_(*symbols), find_(find) {}

  // Returns the errors of CheckInterruption, and the refusal of the account of the work's memory.
  absl::Status Run() {
    const int32_t count = std::ssize(symbols_);
    // Each merge removes one candidate and adds at most two.
    WorkMemory memory;
    SLUICE_RETURN_IF_ERROR(memory.Hold(2 * count * static_cast<int64_t>(sizeof(Candidate))));
    for (int32_t i = 0; i < count; ++i) {
      symbols_[i].previous = i - 1;
      symbols_[i].next = i + 1 < count ? i + 1 : -1;
    }
    for (int32_t i = 0; i < count; ++i) Consider(i);
    InterruptionCounter counter;
    while (!candidates_.empty()) {
      SLUICE_RETURN_IF_ERROR(counter.Check());
      const Candidate best = candidates_.top();
      candidates_.pop();
      Symbol& left = symbols_[best.left];
      if (left.bytes == 0 || left.next < 0) continue;
      Symbol& right = symbols_[left.next];
      if (left.id != best.left_id || right.id != best.right_id) continue;
      left.id = best.merge.id;
      left.bytes += right.bytes;
      right.bytes = 0;
      left.next = right.next;
      if (left.next >= 0) symbols_[left.next].previous = best.left;
      if (left.previous >= 0) Consider(left.previous);
      Consider(best.left);
    }
    return absl::OkStatus();
  }

 private:
  struct Candidate {
    Merge merge;
    int32_t left, left_id, right_id;
    bool operator<(const Candidate& other) const {
      return merge.cost != other.merge.cost ? merge.cost > other.merge.cost : left > other.left;
    }
  };

  void Consider(int32_t left) {
    const int32_t right = symbols_[left].next;
    if (right < 0) return;
    const std::optional<Merge> merge = find_(symbols_[left], symbols_[right]);
    if (merge) candidates_.push({*merge, left, symbols_[left].id, symbols_[right].id});
  }

  std::vector<Symbol>& symbols_;
  Find find_;
  std::priority_queue<Candidate> candidates_;
};

}  // namespace sluice::tokenize
