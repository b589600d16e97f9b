// The bookkeeping of KV pages: the pages of each sequence, and the full pages that other sequences
// can reuse as a prefix.
//
// The memory itself belongs to the slot. Deterministic, without clock, lock or thread. Not
// thread-safe. Does not allocate after construction.
//
// A page is in one of three states: free; held by one or more sequences; or idle, which means that
// it is not held but kept until the page is needed. If no page is free, the page that has been idle
// longest is taken; of one sequence's pages, the last one is taken first. available() counts free
// and idle pages.
//
// When the positions of a full page have been computed, the page is published under all tokens up
// to its end. Tokens are compared one by one (no hash is trusted), so equal pages become the same
// page. A published page is never written to: a sequence continues in its own page.
//
// A prefix that sequences are known to share (SequencePages::shared) may end within a page. The
// positions in that page, the tail, are also published, under all tokens up to the tail's end. The
// rest of the page can still be filled, and the page can later be published as a full page. A
// sequence that begins with a tail copies it to its own page before its first step.
//
// If attention has a window in every layer, sequences release the pages before the window, the
// first page first (ReleaseBefore). A sequence then needs only the last page of a prefix, but the
// prefix is only found while all of its pages are published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace sluice {

// The pages that one sequence holds. Only KvCache changes them, except for `root` and `shared`.
struct SequencePages {
  // In the order of positions. The owner reserves capacity for all pages that the sequence may ever
  // hold.
  std::vector<int32_t> ids;
  int32_t released = 0;   // number of leading pages that were released; their ids are stale
  int32_t published = 0;  // number of leading pages that are published
  int32_t tail = 0;       // number of published positions after those pages
  uint64_t content = 0;   // identifies all tokens of the published pages, if any
  // Identifies everything except tokens that determines the contents of its pages, such as its
  // adapter. Less than KvCache::kMaxRoots. Only sequences of the same root share pages.
  uint64_t root = 0;
  // The number of leading tokens that other sequences are known to share, less than the length of
  // the sequence; 0 if unknown.
  int32_t shared = 0;
  // The page whose tail its first step copies; held until Copied. Negative if there is none.
  int32_t copied_from = -1;
};

class KvCache {
 public:
  static constexpr uint64_t kMaxRoots = uint64_t{1} << 60;
  static constexpr int32_t kNone = -1;  // no page

  // Without `reuse`, no page is published or found. `gives_back` is whether ReleaseBefore is used.
  KvCache(int32_t pages, int32_t page_tokens, bool reuse, bool gives_back = false);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Returns the longest prefix of `tokens` in published pages that leaves at least one token to
  // compute, and the tail after it if the tail ends with the first `shared` tokens. `before` may be
  // an earlier result for these tokens, or for their first part; its pages that are still published
  // are not looked up again.
  struct Prefix {
    int32_t pages = 0;
    int32_t idle =
        0;  // the idle pages among `pages` and `tail`; holding them makes fewer available
    int32_t last = kNone;     // the last of `pages`
    uint64_t content = 0;     // of `last`
    int32_t tail = kNone;     // the page with the tail
    int32_t tail_tokens = 0;  // the length of the tail
  };
  Prefix Find(std::span<const int32_t> tokens, uint64_t root, const Prefix& before,
              int32_t shared = 0) const;
  int32_t TokensOf(const Prefix& prefix) const {
    return prefix.pages * page_tokens_ + prefix.tail_tokens;
  }

  // Makes a sequence without pages hold the prefix that Find has just returned for its tokens. A
  // tail must be copied to the page after the others.
  void Attach(const Prefix& found, SequencePages* pages);

  // Adds pages until the sequence can hold `positions`. If there are not enough available pages,
  // adds none and returns false.
  bool Extend(int32_t positions, SequencePages* pages);

  // Publishes the pages that became full, and the tail of the shared tokens. Requires that
  // positions [0, computed) of `tokens` are in the sequence's pages. If an equal page is already
  // published, the sequence continues with that page and its own page is freed.
  void Publish(std::span<const int32_t> tokens, int32_t computed, SequencePages* pages);
  // Returns the number of positions of the sequence that others can reuse.
  int32_t Published(const SequencePages& pages) const {
    return pages.published * page_tokens_ + pages.tail;
  }

  // Releases the page whose tail was copied, if there is one.
  void Copied(SequencePages* pages);

  // Releases the pages that are completely before `position`, which the sequence must not read any
  // more. If the sequence publishes, requires that these pages are published.
  void ReleaseBefore(int32_t position, SequencePages* pages);

  // Releases the pages after the page of position `positions` - 1. Requires that they are not
  // published.
  void ReleaseAfter(int32_t positions, SequencePages* pages);

  // Releases all pages of the sequence. No effect if it has none.
  void Release(SequencePages* pages);

  int32_t PagesFor(int32_t positions) const {
    return (positions + page_tokens_ - 1) / page_tokens_;
  }
  int32_t page_tokens() const { return page_tokens_; }
  int32_t pages() const { return std::ssize(pages_); }
  int32_t available() const { return free_count_ + idle_count_; }
  int32_t idle() const { return idle_count_; }
  int64_t evicted() const { return evicted_; }  // the number of idle pages that were taken
  // Changes whenever the result of Find may change.
  uint64_t version() const { return version_; }

 private:
  struct Page {
    int32_t holders = 0;
    int32_t previous = kNone;  // in the list of idle pages
    int32_t next = kNone;      // in the list of idle or of free pages
    // Of published pages only.
    int32_t ahead = kNone;  // the page of the positions before its own; kNone for the first page
    uint64_t parent = 0;    // the content of `ahead`, or the root
    uint64_t content = 0;   // identifies all tokens up to its end, never reused; 0: not published
    int32_t tail = 0;       // the length of its published tail; 0 if it has none

    bool published() const { return content != 0 || tail != 0; }
  };

  // The key of a published full page or tail. A content identifies all earlier tokens, so only the
  // page's own tokens are compared.
  struct Key {
    uint64_t parent;
    std::span<const int32_t> tokens;
  };
  static size_t Hash(const Key& key);
  static bool Equal(const Key& a, const Key& b);
  // The keys of an index of pages, either by all of their tokens or by their tails.
  struct Keys {
    const KvCache* cache;
    bool of_tails;

    Key Of(int32_t page) const;
    const Key& Of(const Key& key) const { return key; }
  };
  struct KeyHash : Keys {
    using is_transparent = void;
    size_t operator()(const auto& key) const { return Hash(Of(key)); }
  };
  struct KeyEqual : Keys {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const { return Equal(Of(a), Of(b)); }
  };
  using Index = absl::flat_hash_set<int32_t, KeyHash, KeyEqual>;

  int64_t TokensBegin(int32_t page) const { return int64_t{page} * page_tokens_; }
  Page& At(int32_t page) { return pages_[page]; }
  const Page& At(int32_t page) const { return pages_[page]; }
  // Returns whether the pages ahead of a published page are unchanged since it was published.
  bool IsWhole(int32_t page) const;
  static int32_t Lookup(const Index& index, const Key& key);  // kNone if it is not published
  void PublishTail(std::span<const int32_t> tokens, int32_t computed, SequencePages* pages);
  void Hold(int32_t page);
  void LetGo(int32_t page);
  int32_t Take();  // a free page or the longest idle one
  void Free(int32_t page);
  void AppendIdle(int32_t page);
  void RemoveIdle(int32_t page);

  const int32_t page_tokens_;
  const bool reuse_;
  const bool gives_back_;
  std::vector<Page> pages_;
  std::vector<int32_t> tokens_;  // [pages, page_tokens], of published pages
  Index full_;                   // published full pages
  Index tails_;                  // pages with published tails
  int32_t first_free_ = kNone;
  int32_t free_count_ = 0;
  int32_t first_idle_ = kNone;  // the longest idle
  int32_t last_idle_ = kNone;
  int32_t idle_count_ = 0;
  uint64_t last_content_ = kMaxRoots;
  uint64_t version_ = 0;
  int64_t evicted_ = 0;
};

}  // namespace sluice
