#include "engine/schedule/queue.h"

#include <algorithm>
#include <memory>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

MonoTime At(int64_t ms) { return MonoTime(std::chrono::milliseconds(ms)); }

// What the queue must do, by linear search.
class NaiveQueue {
 public:
  void Push(WaitingSequence* sequence) { sequences_.push_back(sequence); }
  void Remove(const WaitingSequence* sequence) { std::erase(sequences_, sequence); }

  std::vector<WaitingSequence*> Ordered() const {
    std::vector<WaitingSequence*> ordered = sequences_;
    std::sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
      return std::pair(a->priority, a->ticket) < std::pair(b->priority, b->ticket);
    });
    return ordered;
  }
  MonoTime EarliestDeadline() const {
    MonoTime earliest = MonoTime::max();
    for (const auto* sequence : sequences_) earliest = std::min(earliest, sequence->deadline);
    return earliest;
  }
  MonoTime OldestArrival() const {
    MonoTime oldest = MonoTime::max();
    for (const auto* sequence : sequences_) oldest = std::min(oldest, sequence->queued);
    return oldest;
  }
  int64_t tokens() const {
    int64_t tokens = 0;
    for (const auto* sequence : sequences_) tokens += sequence->tokens;
    return tokens;
  }

 private:
  std::vector<WaitingSequence*> sequences_;
};

void ExpectSame(const SequenceQueue& queue, const NaiveQueue& naive, size_t window, MonoTime now) {
  const std::vector<WaitingSequence*> ordered = naive.Ordered();
  std::vector<WaitingSequence*> front;
  queue.Front(window, &front);
  ASSERT_EQ(front.size(), std::min(window, ordered.size()));
  EXPECT_TRUE(std::equal(front.begin(), front.end(), ordered.begin()));
  EXPECT_EQ(queue.size(), ordered.size());
  EXPECT_EQ(queue.empty(), ordered.empty());
  EXPECT_EQ(queue.tokens(), naive.tokens());
  EXPECT_EQ(queue.EarliestDeadline(), naive.EarliestDeadline());
  EXPECT_EQ(queue.OldestArrival(), naive.OldestArrival());
  const WaitingSequence* expired = queue.Expired(now);
  EXPECT_EQ(expired != nullptr, naive.EarliestDeadline() <= now);
  if (expired != nullptr) {
    EXPECT_EQ(expired->deadline, naive.EarliestDeadline());
  }
}

TEST(SequenceQueue, DoesWhatTheNaiveOneDoes) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SequenceQueue queue;
    NaiveQueue naive;
    std::vector<std::unique_ptr<WaitingSequence>> all;
    std::vector<WaitingSequence*> in, out;
    for (int step = 0; step < 300; ++step) {
      const uint64_t action = random() % 8;
      if (action < 4) {
        all.push_back(std::make_unique<WaitingSequence>());
        WaitingSequence* const fresh = all.back().get();
        fresh->ticket = all.size();
        fresh->priority = 1 + static_cast<int>(random() % kPriorityLevels);
        fresh->tokens = 1 + static_cast<int32_t>(random() % 50);
        fresh->queued = At(step);
        if (random() % 2 == 0) fresh->deadline = At(static_cast<int64_t>(random() % 400));
        queue.Push(fresh);
        naive.Push(fresh);
        in.push_back(fresh);
      } else if (action < 6 && !in.empty()) {
        const auto it = in.begin() + static_cast<ptrdiff_t>(random() % in.size());
        WaitingSequence* const removed = *it;
        in.erase(it);
        queue.Remove(removed);
        naive.Remove(removed);
        out.push_back(removed);
      } else if (!out.empty()) {  // back with its old ticket and one token more
        WaitingSequence* const back = out.back();
        out.pop_back();
        ++back->tokens;
        queue.Push(back);
        naive.Push(back);
        in.push_back(back);
      }
      ExpectSame(queue, naive, random() % 12, At(step));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SequenceQueueDeathTest, SequencesComeAndGoOnce) {
  SequenceQueue queue;
  WaitingSequence sequence{.ticket = 1, .tokens = 3};
  EXPECT_DEATH(queue.Remove(&sequence), "broken invariant");
  queue.Push(&sequence);
  EXPECT_DEATH(queue.Push(&sequence), "broken invariant");
}

TEST(AdmissionBudget, NamesTheBoundThatIsReached) {
  AdmissionBudget budget({.max_requests = 2, .max_tokens = 100});
  EXPECT_TRUE(budget.Take(60).ok());
  const absl::Status tokens = budget.Take(41);
  EXPECT_EQ(tokens.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tokens.message()), HasSubstr("max_tokens"));
  EXPECT_TRUE(budget.Take(40).ok());  // exactly full
  const absl::Status requests = budget.Take(0);
  EXPECT_EQ(requests.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(requests.message()), HasSubstr("max_requests"));
  budget.Return(60);
  EXPECT_TRUE(budget.Take(60).ok());
}

TEST(AdmissionBudget, DoesNotOverflow) {
  AdmissionBudget budget({.max_requests = 10, .max_tokens = 100});
  EXPECT_TRUE(budget.Take(50).ok());
  EXPECT_FALSE(budget.Take(std::numeric_limits<int64_t>::max()).ok());
}

}  // namespace
}  // namespace sluice
