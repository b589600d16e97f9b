// Which KV pages hold what: the pages of each sequence, and the full ones that others may begin with.
//
// Bookkeeping only; the memory is the slot's. Deterministic, without clock, lock or thread. Not
// thread-safe. Allocates nothing after construction.
//
// A page is in one of three states: free; held, by as many sequences as began with it; or idle, held
// by nobody but found by its content until the page is needed, the longest idle first, and of one
// sequence's pages the last first. What is idle is as good as free: available() counts both.
//
// A full page whose positions were computed is published under all tokens up to its end, compared
// token by token (no hash is trusted), so that equal pages are the same page. Nobody writes to a
// published page: only full ones are, and a sequence goes on in a page of its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace sluice {

// The pages that one sequence holds. Made and changed by KvCache alone.
struct SequencePages {
  // In the order of positions. Its owner reserves room for all that the sequence may ever have.
  std::vector<int32_t> ids;
  int32_t published = 0;  // leading ones
  uint64_t content = 0;   // names all tokens of these; before the first one: of the adapter
};

class KvCache {
 public:
  // page_tokens <= kMostPageTokens. Without `reuse` nothing is ever found.
  static constexpr int32_t kMostPageTokens = 64;
  KvCache(int32_t pages, int32_t page_tokens, bool reuse);

  // The longest prefix of `tokens` in published pages. It leaves at least one token to be computed.
  struct Prefix {
    int32_t pages = 0;
    int32_t idle = 0;  // of these; holding them takes them from what is available
  };
  Prefix Find(std::span<const int32_t> tokens) const;

  // Has a sequence without pages hold that prefix.
  void Attach(std::span<const int32_t> tokens, SequencePages* pages);

  // Gives it pages of its own until they hold `positions`. False, and no page, when fewer are
  // available.
  bool Extend(int32_t positions, SequencePages* pages);

  // Positions [0, computed) of `tokens` are in its pages: publishes those that became full. Where an
  // equal page was published before, the sequence goes on with that one and its own is freed.
  void Publish(std::span<const int32_t> tokens, int32_t computed, SequencePages* pages);

  // Lets go of all its pages. No effect without any.
  void Release(SequencePages* pages);

  int32_t PagesFor(int32_t positions) const {
    return (positions + page_tokens_ - 1) / page_tokens_;
  }
  int32_t page_tokens() const { return page_tokens_; }
  int32_t pages() const;
  int32_t available() const;  // free or idle
  int32_t idle() const;
  int64_t evicted() const;  // idle pages that were taken
  // Changes whenever Find may answer otherwise than before.
  uint64_t version() const;
};

}  // namespace sluice
