// Compares a KvCache under random sequences with a simple model of it.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "engine/schedule/kv_cache.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using Tokens = std::vector<int32_t>;

// A simple model of the cache, in terms of prefixes.
class Model {
 public:
  Model(int32_t pages, int32_t page_tokens) : page_tokens_(page_tokens), holders_(pages, 0) {}

  static Tokens PrefixOfTokens(const Tokens& tokens, int32_t count) {
    return {tokens.begin(), tokens.begin() + count};
  }
  Tokens PrefixOf(const Tokens& tokens, int32_t pages) const {
    return PrefixOfTokens(tokens, pages * page_tokens_);
  }
  KvCache::Prefix Find(const Tokens& tokens, int32_t shared) const {
    KvCache::Prefix prefix;
    while ((prefix.pages + 1) * page_tokens_ < static_cast<int32_t>(tokens.size())) {
      const auto found = published_.find(PrefixOf(tokens, prefix.pages + 1));
      if (found == published_.end()) break;
      ++prefix.pages;
      if (holders_[found->second] == 0) ++prefix.idle;
    }
    const auto tail = tails_.find(PrefixOfTokens(tokens, shared));
    if (shared / page_tokens_ == prefix.pages && tail != tails_.end() &&
        shared < std::ssize(tokens)) {
      prefix.tail = tail->second;
      prefix.tail_tokens = shared % page_tokens_;
      if (holders_[tail->second] == 0) ++prefix.idle;
    }
    return prefix;
  }

  void Hold(int32_t page) {
    ++holders_[page];
    std::erase(idle_, page);
  }
  void LetGo(int32_t page) {
    if (--holders_[page] == 0 && IsPublished(page)) idle_.push_back(page);
  }
  // Records that the cache gave `page` to a sequence.
  void Take(int32_t page) {
    ASSERT_EQ(holders_[page], 0);
    if (static_cast<size_t>(Free()) > 0) {
      ASSERT_FALSE(IsPublished(page));
    } else {
      ASSERT_EQ(page, idle_.front());
      std::erase_if(published_, [&](const auto& entry) { return entry.second == page; });
      std::erase_if(tails_, [&](const auto& entry) { return entry.second == page; });
    }
    Hold(page);
  }
  // Publishes `prefix` under `page` unless it is already published; returns its page.
  int32_t Publish(const Tokens& prefix, int32_t page) {
    return published_.try_emplace(prefix, page).first->second;
  }
  // Publishes `prefix`, which ends within `page`, unless it is already published.
  void PublishTail(const Tokens& prefix, int32_t page) { tails_.try_emplace(prefix, page); }
  bool HasTail(int32_t page) const {
    return std::any_of(tails_.begin(), tails_.end(),
                       [&](const auto& entry) { return entry.second == page; });
  }

  int32_t Idle() const { return static_cast<int32_t>(idle_.size()); }
  int32_t Free() const {
    return static_cast<int32_t>(std::count(holders_.begin(), holders_.end(), 0)) - Idle();
  }
  int32_t holders(int32_t page) const { return holders_[page]; }
  const std::map<Tokens, int32_t>& published() const { return published_; }

 private:
  bool IsPublished(int32_t page) const {
    return HasTail(page) || std::any_of(published_.begin(), published_.end(),
                                        [&](const auto& entry) { return entry.second == page; });
  }

  const int32_t page_tokens_;
  std::vector<int32_t> holders_;
  std::vector<int32_t> idle_;  // in the order in which they became idle
  std::map<Tokens, int32_t> published_;
  std::map<Tokens, int32_t> tails_;  // pages with published tails
};

// Runs random sequences with common prefixes on the cache and on the model.
class ModelTest {
 public:
  explicit ModelTest(uint64_t seed)
      : random_(seed),
        page_tokens_(1 + Below(4)),
        pages_(1 + Below(24)),
        cache_(pages_, page_tokens_, true),
        model_(pages_, page_tokens_) {
    for (int i = 0; i < 12; ++i) probes_.push_back(RandomTokens());
  }

  void Run() {
    for (int step = 0; step < 400 && !::testing::Test::HasFatalFailure(); ++step) {
      const std::vector<std::pair<int32_t, int32_t>> before = Probe();
      const uint64_t version = cache_.version();
      Step();
      Check();
      if (Probe() != before) {
        ASSERT_NE(cache_.version(), version);
      }
    }
    while (!sequences_.empty()) Release(0);
    Check();
    EXPECT_EQ(cache_.available(), pages_);
  }
  int64_t tails_found() const { return tails_found_; }

 private:
  struct Sequence {
    Tokens tokens;
    int32_t computed = 0;
    SequencePages pages;
  };

  int32_t Below(uint64_t limit) { return static_cast<int32_t>(random_() % limit); }

  // Returns random tokens with two values, mostly the same one, so that prefixes are often equal.
  Tokens RandomTokens() {
    Tokens tokens(1 + static_cast<size_t>(Below(20)));
    for (int32_t& token : tokens) token = Below(8) == 0 ? 1 : 0;
    return tokens;
  }

  void Step() {
    const int32_t action = Below(4);
    if (action == 0 || sequences_.empty()) {
      Begin();
    } else if (action == 3) {
      Release(static_cast<size_t>(Below(sequences_.size())));
    } else {
      Compute(&sequences_[static_cast<size_t>(Below(sequences_.size()))]);
    }
  }

  void Begin() {
    Sequence& sequence = sequences_.emplace_back();
    sequence.tokens = RandomTokens();
    const auto shared = Below(sequence.tokens.size());
    sequence.pages.shared = shared;
    const KvCache::Prefix expected = model_.Find(sequence.tokens, shared);
    const int32_t found = expected.pages;
    cache_.Attach(cache_.Find(sequence.tokens, 0, {}, shared), &sequence.pages);
    ASSERT_EQ(sequence.pages.ids.size(), static_cast<size_t>(found));
    ASSERT_EQ(sequence.pages.copied_from, expected.tail);
    for (int32_t i = 0; i < found; ++i) {
      const int32_t page = sequence.pages.ids[static_cast<size_t>(i)];
      ASSERT_EQ(page, model_.published().at(model_.PrefixOf(sequence.tokens, i + 1)));
      model_.Hold(page);
    }
    if (expected.tail != KvCache::kNone) {
      model_.Hold(expected.tail);
      ++tails_found_;
    }
    sequence.computed = found * page_tokens_ + expected.tail_tokens;
  }

  // Releases the page whose tail the sequence's first step has copied.
  void Copied(SequencePages* pages) {
    if (pages->copied_from != KvCache::kNone) model_.LetGo(pages->copied_from);
    cache_.Copied(pages);
    ASSERT_EQ(pages->copied_from, KvCache::kNone);
  }

  void Compute(Sequence* sequence) {
    const auto length = static_cast<int32_t>(sequence->tokens.size());
    const int32_t end = sequence->computed + Below(static_cast<uint64_t>(length) + 1);
    if (end > length) return;
    const auto held = static_cast<int32_t>(sequence->pages.ids.size());
    const int32_t wanted = std::max(cache_.PagesFor(end) - held, 0);
    const bool enough = wanted <= model_.Free() + model_.Idle();
    ASSERT_EQ(cache_.Extend(end, &sequence->pages), enough);
    if (!enough) return;
    ASSERT_EQ(sequence->pages.ids.size(), static_cast<size_t>(held + wanted));
    for (int32_t i = held; i < held + wanted; ++i) {
      model_.Take(sequence->pages.ids[static_cast<size_t>(i)]);
    }
    Copied(&sequence->pages);
    Publish(sequence, end);
  }

  void Publish(Sequence* sequence, int32_t end) {
    Tokens expected = sequence->pages.ids;
    const int32_t shared = sequence->pages.shared;
    const bool has_tail = shared % page_tokens_ > 0 && end >= shared;
    const size_t tail = static_cast<size_t>(shared / page_tokens_);
    if (has_tail && sequence->pages.published <= static_cast<int32_t>(tail)) {
      model_.PublishTail(Model::PrefixOfTokens(sequence->tokens, shared), expected[tail]);
    }
    for (int32_t i = sequence->pages.published; i < end / page_tokens_; ++i) {
      int32_t& page = expected[static_cast<size_t>(i)];
      const int32_t equal = model_.Publish(model_.PrefixOf(sequence->tokens, i + 1), page);
      if (equal == page) continue;
      model_.LetGo(page);
      model_.Hold(equal);
      page = equal;
    }
    cache_.Publish(sequence->tokens, end, &sequence->pages);
    ASSERT_EQ(sequence->pages.ids, expected);
    ASSERT_EQ(sequence->pages.published, end / page_tokens_);
    ASSERT_EQ(cache_.Published(sequence->pages),
              std::max(end / page_tokens_ * page_tokens_, has_tail ? shared : 0));
    sequence->computed = end;
  }

  void Release(size_t index) {
    std::swap(sequences_[index], sequences_.back());
    Copied(&sequences_.back().pages);
    Tokens ids = sequences_.back().pages.ids;
    std::reverse(ids.begin(), ids.end());
    for (const int32_t page : ids) model_.LetGo(page);
    cache_.Release(&sequences_.back().pages);
    sequences_.pop_back();
  }

  void Check() {
    ASSERT_EQ(cache_.available(), model_.Free() + model_.Idle());
    ASSERT_EQ(cache_.idle(), model_.Idle());
    std::map<int32_t, int32_t> holders;
    for (const Sequence& sequence : sequences_) {
      for (size_t i = 0; i < sequence.pages.ids.size(); ++i) {
        const int32_t page = sequence.pages.ids[i];
        ++holders[page];
        ASSERT_TRUE(model_.holders(page) == 1 || model_.HasTail(page) ||
                    i < static_cast<size_t>(sequence.pages.published));
      }
      const int32_t copied = sequence.pages.copied_from;
      if (copied != KvCache::kNone) ++holders[copied];
    }
    ASSERT_EQ(cache_.available() + static_cast<int32_t>(holders.size()), pages_);
    for (const auto& [page, count] : holders) ASSERT_EQ(count, model_.holders(page));
    // Every published prefix can be found: the prefix one page shorter is published too.
    for (const auto& [prefix, page] : model_.published()) {
      const Tokens ahead(prefix.begin(), prefix.end() - page_tokens_);
      ASSERT_TRUE(ahead.empty() || model_.published().contains(ahead));
    }
  }

  // Returns the number of tokens and of idle pages found for each probe. Looks both from scratch
  // and from the prefix that was found before.
  std::vector<std::pair<int32_t, int32_t>> Probe() {
    std::vector<std::pair<int32_t, int32_t>> answers;
    found_.resize(probes_.size());
    for (size_t i = 0; i < probes_.size(); ++i) {
      const auto shared = static_cast<int32_t>(probes_[i].size() - 1);
      const KvCache::Prefix expected = model_.Find(probes_[i], shared);
      const KvCache::Prefix again = cache_.Find(probes_[i], 0, found_[i], shared);
      if (Below(4) == 0) found_[i] = again;
      for (const KvCache::Prefix& found : {cache_.Find(probes_[i], 0, {}, shared), again}) {
        EXPECT_EQ(found.pages, expected.pages);
        EXPECT_EQ(found.idle, expected.idle);
        EXPECT_EQ(found.tail, expected.tail);
        EXPECT_EQ(cache_.TokensOf(found), found.pages * page_tokens_ + expected.tail_tokens);
      }
      answers.emplace_back(cache_.TokensOf(again), again.idle);
    }
    return answers;
  }

  std::mt19937_64 random_;
  const int32_t page_tokens_, pages_;
  KvCache cache_;
  Model model_;
  std::vector<Tokens> probes_;
  std::vector<KvCache::Prefix> found_;  // an earlier result for each probe
  std::vector<Sequence> sequences_;
  int64_t tails_found_ = 0;
};

TEST(KvCacheProperty, BehavesLikeAModelOfPrefixes) {
  int64_t tails_found = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    ModelTest test(seed);
    test.Run();
    tails_found += test.tails_found();
    if (HasFailure()) return;
  }
  EXPECT_GT(tails_found, 1000);
}

}  // namespace
}  // namespace sluice
