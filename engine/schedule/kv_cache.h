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

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace sluice {

// The pages that one sequence holds. Made and changed by KvCache alone, but for `root`.
struct SequencePages {
  // In the order of positions. Its owner reserves room for all that the sequence may ever have.
  std::vector<int32_t> ids;
  int32_t published = 0;  // leading ones
  uint64_t content = 0;   // names all tokens of these, when there are any
  // What besides tokens decides the contents of its pages: its adapter. < KvCache::kMostRoots. Only
  // sequences of the same root share pages.
  uint64_t root = 0;
};

class KvCache {
 public:
  static constexpr uint64_t kMostRoots = uint64_t{1} << 32;
  static constexpr int32_t kNone = -1;  // no page

  // Without `reuse` nothing is published, and nothing found.
  KvCache(int32_t pages, int32_t page_tokens, bool reuse);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // The longest prefix of `tokens` in published pages. It leaves at least one token to be computed.
  // `before` may be what was found for these tokens, or for the first of them: what of it is still
  // there is not looked up again.
  struct Prefix {
    int32_t pages = 0;
    int32_t idle = 0;      // of these; holding them takes them from what is available
    int32_t last = kNone;  // of these
    uint64_t content = 0;  // of the last
  };
  Prefix Find(std::span<const int32_t> tokens, uint64_t root, const Prefix& before) const;

  // Has a sequence without pages hold the prefix of its tokens that was found just before.
  void Attach(const Prefix& found, SequencePages* pages);

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
  int32_t pages() const { return static_cast<int32_t>(pages_.size()); }
  int32_t available() const { return free_count_ + idle_count_; }
  int32_t idle() const { return idle_count_; }
  int64_t evicted() const { return evicted_; }  // idle pages that were taken
  // Changes whenever Find may answer otherwise than before.
  uint64_t version() const { return version_; }

 private:
  struct Page {
    int32_t holders = 0;
    int32_t previous = kNone;  // in the list of idle pages
    int32_t next = kNone;      // in that, or in the one of free pages
    // Of published ones.
    int32_t ahead = kNone;  // the page of the positions before its own; kNone: these are the first
    uint64_t parent = 0;    // content of that, or the root
    uint64_t content = 0;  // names all tokens up to its end and is never used again; 0: unpublished
  };

  // What a page is published under. Contents stand for all tokens that they name, so that the page's
  // own are all that is left to compare.
  struct Key {
    uint64_t parent;
    const int32_t* tokens;  // [page_tokens]
  };
  Key KeyOf(int32_t page) const { return {At(page).parent, &tokens_[TokensBegin(page)]}; }
  Key KeyOf(const Key& key) const { return key; }
  size_t Hash(const Key& key) const;
  bool Equal(const Key& a, const Key& b) const;
  struct KeyHash {
    using is_transparent = void;
    const KvCache* cache;
    size_t operator()(const auto& key) const { return cache->Hash(cache->KeyOf(key)); }
  };
  struct KeyEqual {
    using is_transparent = void;
    const KvCache* cache;
    bool operator()(const auto& a, const auto& b) const {
      return cache->Equal(cache->KeyOf(a), cache->KeyOf(b));
    }
  };

  size_t TokensBegin(int32_t page) const {
    return static_cast<size_t>(page) * static_cast<size_t>(page_tokens_);
  }
  Page& At(int32_t page) { return pages_[static_cast<size_t>(page)]; }
  const Page& At(int32_t page) const { return pages_[static_cast<size_t>(page)]; }
  int32_t Lookup(const Key& key) const;  // kNone when it is not published
  void Hold(int32_t page);
  void LetGo(int32_t page);
  int32_t Take();  // a free page or the longest idle one
  void Free(int32_t page);
  void AppendIdle(int32_t page);
  void RemoveIdle(int32_t page);

  const int32_t page_tokens_;
  const bool reuse_;
  std::vector<Page> pages_;
  std::vector<int32_t> tokens_;  // [pages, page_tokens], of published pages
  absl::flat_hash_set<int32_t, KeyHash, KeyEqual> index_;  // published pages
  int32_t first_free_ = kNone;
  int32_t free_count_ = 0;
  int32_t first_idle_ = kNone;  // the longest idle
  int32_t last_idle_ = kNone;
  int32_t idle_count_ = 0;
  uint64_t last_content_ = kMostRoots;
  uint64_t version_ = 0;
  int64_t evicted_ = 0;
};

}  // namespace sluice
