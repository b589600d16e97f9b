#include "engine/schedule/kv_cache.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "base/check.h"

namespace sluice {
namespace {

// With this many slots per page, an index never grows: at most half of its slots hold pages, so it
// cleans up erased entries in place.
constexpr size_t kSlotsPerPage = 2;

}  // namespace

KvCache::KvCache(int32_t pages, int32_t page_tokens, bool reuse, bool gives_back)
    : page_tokens_(page_tokens),
      reuse_(reuse),
      gives_back_(gives_back),
      pages_(pages),
      full_(0, KeyHash{this, false}, KeyEqual{this, false}),
      tails_(0, KeyHash{this, true}, KeyEqual{this, true}) {
  SLUICE_CHECK(pages >= 0 && page_tokens >= 1);
  if (reuse_) {
    tokens_.resize(TokensBegin(pages));
    full_.reserve(kSlotsPerPage * pages_.size());
    tails_.reserve(kSlotsPerPage * pages_.size());
  }
  for (int32_t page = pages - 1; page >= 0; --page) Free(page);
}

size_t KvCache::Hash(const Key& key) {
  return absl::HashOf(key.parent, absl::MakeConstSpan(key.tokens.data(), key.tokens.size()));
}

KvCache::Key KvCache::Keys::Of(int32_t page) const {
  const int32_t count = of_tails ? cache->At(page).tail : cache->page_tokens_;
  return {.parent = cache->At(page).parent,
          .tokens = {&cache->tokens_[cache->TokensBegin(page)], static_cast<size_t>(count)}};
}

bool KvCache::Equal(const Key& a, const Key& b) {
  return a.parent == b.parent && std::ranges::equal(a.tokens, b.tokens);
}

int32_t KvCache::Lookup(const Index& index, const Key& key) {
  const auto found = index.find(key);
  return found == index.end() ? kNone : *found;
}

bool KvCache::IsWhole(int32_t page) const {
  for (; At(page).ahead != kNone; page = At(page).ahead) {
    if (At(At(page).ahead).content != At(page).parent) return false;
  }
  return true;
}

// If a page is published, the pages ahead of it are published too and are evicted later. If a page
// is held, the pages ahead of it are held too. Therefore only the last page of an earlier result is
// checked, and idle pages are counted back from the end. Neither holds if pages are released from
// the first on (ReleaseBefore).
KvCache::Prefix KvCache::Find(std::span<const int32_t> tokens, uint64_t root, const Prefix& before,
                              int32_t shared) const {
  SLUICE_CHECK(root < kMaxRoots && shared <= std::ssize(tokens));
  Prefix prefix;
  if (!reuse_) return prefix;
  prefix.content = root;
  if (before.pages > 0 && At(before.last).content == before.content &&
      (!gives_back_ || IsWhole(before.last))) {
    prefix = {.pages = before.pages, .last = before.last, .content = before.content};
  }
  int64_t found = TokensBegin(prefix.pages);
  for (; found + page_tokens_ < std::ssize(tokens); ++prefix.pages) {
    const int32_t page =
        Lookup(full_, {.parent = prefix.content, .tokens = tokens.subspan(found, page_tokens_)});
    if (page == kNone) break;
    prefix.last = page;
    prefix.content = At(page).content;
    found += page_tokens_;
  }
  for (int32_t page = prefix.last; page != kNone; page = At(page).ahead) {
    if (At(page).holders == 0) {
      ++prefix.idle;
    } else if (!gives_back_) {
      break;
    }
  }
  const int64_t rest = shared - found;
  if (rest <= 0 || rest >= page_tokens_ || shared == std::ssize(tokens)) return prefix;
  prefix.tail = Lookup(tails_, {.parent = prefix.content, .tokens = tokens.subspan(found, rest)});
  if (prefix.tail == kNone) return prefix;
  prefix.tail_tokens = static_cast<int32_t>(rest);
  if (At(prefix.tail).holders == 0) ++prefix.idle;
  return prefix;
}

void KvCache::Attach(const Prefix& found, SequencePages* pages) {
  SLUICE_CHECK(pages->ids.empty());
  SLUICE_CHECK(found.pages == 0 || At(found.last).content == found.content);
  int32_t left = found.pages;
  pages->ids.resize(left);
  for (int32_t page = found.last; page != kNone; page = At(page).ahead) {
    Hold(page);
    pages->ids[--left] = page;
  }
  pages->published = found.pages;
  pages->content = found.content;
  if (found.tail == kNone) return;
  SLUICE_CHECK(At(found.tail).tail == found.tail_tokens);
  Hold(found.tail);
  pages->copied_from = found.tail;
}

void KvCache::Copied(SequencePages* pages) {
  if (pages->copied_from != kNone) LetGo(std::exchange(pages->copied_from, kNone));
}

bool KvCache::Extend(int32_t positions, SequencePages* pages) {
  const int64_t wanted = PagesFor(positions);
  if (wanted > std::ssize(pages->ids) + available()) return false;
  while (std::ssize(pages->ids) < wanted) pages->ids.push_back(Take());
  return true;
}

void KvCache::Publish(std::span<const int32_t> tokens, int32_t computed, SequencePages* pages) {
  if (!reuse_) return;
  SLUICE_CHECK(computed >= 0 && computed <= std::ssize(tokens));
  SLUICE_CHECK(PagesFor(computed) <= std::ssize(pages->ids));
  if (pages->published == 0) pages->content = pages->root;
  PublishTail(tokens, computed, pages);
  while (pages->published < computed / page_tokens_) {
    const int32_t index = pages->published;
    int32_t& id = pages->ids[index];
    const Key key{.parent = pages->content,
                  .tokens = tokens.subspan(TokensBegin(index), page_tokens_)};
    const int32_t equal = Lookup(full_, key);
    if (equal != kNone) {
      LetGo(id);
      Hold(equal);
      id = equal;
    } else {
      At(id).ahead = index == 0 ? kNone : pages->ids[index - 1];
      At(id).parent = key.parent;
      At(id).content = ++last_content_;
      std::ranges::copy(key.tokens, &tokens_[TokensBegin(id)]);
      full_.insert(id);
      ++version_;
    }
    pages->content = At(id).content;
    ++pages->published;
    PublishTail(tokens, computed, pages);
  }
}

// Publishes the tail after the published pages, if the shared tokens end within the next page.
void KvCache::PublishTail(std::span<const int32_t> tokens, int32_t computed, SequencePages* pages) {
  const int64_t begin = TokensBegin(pages->published);
  const int64_t count = pages->shared - begin;
  pages->tail = 0;
  if (count <= 0 || count >= page_tokens_ || computed < pages->shared) return;
  pages->tail = static_cast<int32_t>(count);
  const Key key{.parent = pages->content, .tokens = tokens.subspan(begin, count)};
  if (Lookup(tails_, key) != kNone) return;
  const int32_t id = pages->ids[pages->published];
  SLUICE_CHECK(!At(id).published());
  At(id).parent = key.parent;
  At(id).tail = pages->tail;
  std::ranges::copy(key.tokens, &tokens_[TokensBegin(id)]);
  tails_.insert(id);
  ++version_;
}

void KvCache::ReleaseBefore(int32_t position, SequencePages* pages) {
  SLUICE_CHECK(gives_back_);
  const auto held = static_cast<int32_t>(pages->ids.size());
  const int32_t past = std::min(position / page_tokens_, held);
  for (; pages->released < past; ++pages->released) LetGo(pages->ids[pages->released]);
}

void KvCache::ReleaseAfter(int32_t positions, SequencePages* pages) {
  const int32_t kept = PagesFor(positions);
  SLUICE_CHECK(kept >= pages->published);
  for (; std::ssize(pages->ids) > kept; pages->ids.pop_back()) LetGo(pages->ids.back());
}

// Releases the pages from the last to the first, so that no page is idle for longer than the pages
// after it. Evicting a page then never makes later pages unreachable.
void KvCache::Release(SequencePages* pages) {
  Copied(pages);
  for (; std::ssize(pages->ids) > pages->released; pages->ids.pop_back()) {
    LetGo(pages->ids.back());
  }
  pages->ids.clear();
  pages->released = 0;
  pages->published = 0;
  pages->tail = 0;
}

void KvCache::Hold(int32_t page) {
  if (At(page).holders++ == 0) RemoveIdle(page);
}

void KvCache::LetGo(int32_t page) {
  SLUICE_CHECK(At(page).holders > 0);
  if (--At(page).holders > 0) return;
  if (At(page).published()) {
    AppendIdle(page);
  } else {
    Free(page);
  }
}

int32_t KvCache::Take() {
  int32_t page = first_free_;
  if (page != kNone) {
    first_free_ = At(page).next;
    --free_count_;
  } else {
    page = first_idle_;
    RemoveIdle(page);
    if (At(page).content != 0) full_.erase(page);
    if (At(page).tail != 0) tails_.erase(page);
    At(page).content = 0;
    At(page).tail = 0;
    ++evicted_;
  }
  At(page).holders = 1;
  return page;
}

void KvCache::Free(int32_t page) {
  At(page).next = first_free_;
  first_free_ = page;
  ++free_count_;
}

void KvCache::AppendIdle(int32_t page) {
  At(page).previous = last_idle_;
  At(page).next = kNone;
  (last_idle_ == kNone ? first_idle_ : At(last_idle_).next) = page;
  last_idle_ = page;
  ++idle_count_;
  ++version_;
}

void KvCache::RemoveIdle(int32_t page) {
  const int32_t previous = At(page).previous;
  const int32_t next = At(page).next;
  (previous == kNone ? first_idle_ : At(previous).next) = next;
  (next == kNone ? last_idle_ : At(next).previous) = previous;
  --idle_count_;
  ++version_;
}

}  // namespace sluice
