#include "engine/schedule/queue.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kStep(20);

MonoTime At(int64_t ms) { return MonoTime(std::chrono::milliseconds(ms)); }

// The expected behaviour of the queue, by linear search.
class NaiveQueue {
 public:
  static bool Before(const WaitingSequence& a, const WaitingSequence& b) {
    return std::pair(a.queued + a.deferred + a.priority * kStep, a.ticket) <
           std::pair(b.queued + b.deferred + b.priority * kStep, b.ticket);
  }

  void Push(WaitingSequence* sequence) { sequences_.push_back(sequence); }
  void Remove(const WaitingSequence* sequence) { std::erase(sequences_, sequence); }

  std::vector<WaitingSequence*> Ordered() const {
    std::vector<WaitingSequence*> ordered = sequences_;
    std::sort(ordered.begin(), ordered.end(),
              [](const auto* a, const auto* b) { return Before(*a, *b); });
    return ordered;
  }
  std::vector<WaitingSequence*> Urgent(MonoTime until) const {
    std::vector<WaitingSequence*> urgent = sequences_;
    std::erase_if(urgent, [&](const auto* sequence) {
      return sequence->deadline == MonoTime::max() || sequence->deadline > until;
    });
    std::sort(urgent.begin(), urgent.end(), [](const auto* a, const auto* b) {
      return std::pair(a->deadline, a->ticket) < std::pair(b->deadline, b->ticket);
    });
    return urgent;
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
  MonoTime OldestWaiting() const {
    MonoTime oldest = MonoTime::max();
    for (const auto* sequence : sequences_) {
      if (!sequence->running) oldest = std::min(oldest, sequence->queued);
    }
    return oldest;
  }
  std::vector<WaitingSequence*> Running() const {
    std::vector<WaitingSequence*> running = Ordered();
    std::erase_if(running, [](const auto* sequence) { return !sequence->running; });
    return running;
  }
  DueTotals::Total DueBy(MonoTime deadline, int priority) const {
    DueTotals::Total due;
    for (const auto* sequence : sequences_) {
      if (sequence->running || sequence->deadline == MonoTime::max()) continue;
      if (sequence->deadline > deadline || sequence->priority > priority) continue;
      ++due.sequences;
      due.tokens += sequence->tokens + sequence->later_tokens;
    }
    return due;
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
  std::vector<WaitingSequence*> urgent = naive.Urgent(now + kStep);
  urgent.resize(std::min(urgent.size(), window));
  queue.Urgent(now + kStep, window, &front);
  EXPECT_EQ(front, urgent);
  EXPECT_EQ(queue.size(), std::ssize(ordered));
  EXPECT_EQ(queue.empty(), ordered.empty());
  EXPECT_EQ(queue.tokens(), naive.tokens());
  EXPECT_EQ(queue.EarliestDeadline(), naive.EarliestDeadline());
  EXPECT_EQ(queue.OldestArrival(), naive.OldestArrival());
  EXPECT_EQ(queue.OldestWaiting(), naive.OldestWaiting());
  const std::vector<WaitingSequence*> running = naive.Running();
  queue.Running(&front);
  EXPECT_EQ(front, running);
  EXPECT_EQ(queue.running(), std::ssize(running));
  EXPECT_EQ(queue.LastRunning(), running.empty() ? nullptr : running.back());
  int64_t pages = 0;
  for (const auto* sequence : running) pages += sequence->pages;
  EXPECT_EQ(queue.running_pages(), pages);
  for (int level = 1; level <= kPriorityLevels; ++level) {
    // Deadlines are whole milliseconds, so that some are equal to this one.
    const MonoTime deadline = now + level * kStep;
    const DueTotals::Total due = queue.PromptsDueBy(deadline, level);
    EXPECT_EQ(due.sequences, naive.DueBy(deadline, level).sequences);
    EXPECT_EQ(due.tokens, naive.DueBy(deadline, level).tokens);
  }
  const WaitingSequence* expired = queue.Expired(now);
  EXPECT_EQ(expired != nullptr, naive.EarliestDeadline() <= now);
  if (expired != nullptr) {
    EXPECT_EQ(expired->deadline, naive.EarliestDeadline());
  }
}

std::unique_ptr<WaitingSequence> RandomSequence(std::mt19937_64* random, uint64_t ticket,
                                                MonoTime now) {
  auto sequence = std::make_unique<WaitingSequence>();
  sequence->ticket = ticket;
  sequence->priority = 1 + static_cast<int>((*random)() % kPriorityLevels);
  sequence->tokens = 1 + static_cast<int32_t>((*random)() % 50);
  sequence->pages = static_cast<int32_t>((*random)() % 5);
  sequence->running = (*random)() % 3 == 0;
  sequence->queued = now;
  sequence->deferred = kStep * (static_cast<int64_t>((*random)() % 5) - 2);
  if ((*random)() % 2 == 0) sequence->deadline = At(static_cast<int64_t>((*random)() % 400));
  return sequence;
}

TEST(SequenceQueue, BehavesLikeALinearSearch) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SequenceQueue queue(kStep);
    NaiveQueue naive;
    std::vector<std::unique_ptr<WaitingSequence>> all;
    std::vector<WaitingSequence*> in, out;
    for (int step = 0; step < 300; ++step) {
      const uint64_t action = random() % 9;
      if (action < 4) {
        all.push_back(RandomSequence(&random, all.size(), At(step / 2)));
        WaitingSequence* const fresh = all.back().get();
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
      } else if (action == 8 && !in.empty()) {
        WaitingSequence* const revised = in[random() % in.size()];
        queue.Revise(revised, {.first_position = 3,
                               .tokens = 1 + static_cast<int32_t>(random() % 50),
                               .later_tokens = 7,
                               .sampled_rows = 0,
                               .pages = static_cast<int32_t>(random() % 5),
                               .running = random() % 2 == 0});
        EXPECT_EQ(revised->later_tokens, 7);
      } else if (!out.empty()) {  // returns with its old ticket and one token more
        WaitingSequence* const back = out.back();
        out.pop_back();
        ++back->tokens;
        back->running = true;
        queue.Push(back);
        naive.Push(back);
        in.push_back(back);
      }
      ExpectSame(queue, naive, random() % 12, At(step));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SequenceQueue, TakeCountsOvertakenSequences) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SequenceQueue queue(kStep);
    NaiveQueue naive;
    std::vector<std::unique_ptr<WaitingSequence>> all;
    std::vector<int32_t> overtaken;  // the expected counts, by ticket
    for (int round = 0; round < 20; ++round) {
      for (uint64_t i = random() % 10; i > 0; --i) {
        all.push_back(RandomSequence(&random, all.size(), At(round)));
        overtaken.push_back(0);
        queue.Push(all.back().get());
        naive.Push(all.back().get());
      }
      std::vector<WaitingSequence*> taken, left;
      for (WaitingSequence* sequence : naive.Ordered()) {
        (random() % 3 == 0 ? taken : left).push_back(sequence);
      }
      queue.Take(taken);
      for (const WaitingSequence* ahead : left) {
        for (const WaitingSequence* passing : taken) {
          if (NaiveQueue::Before(*ahead, *passing)) ++overtaken[ahead->ticket];
        }
        EXPECT_EQ(ahead->overtaken, overtaken[ahead->ticket]);
      }
      for (const WaitingSequence* sequence : taken) naive.Remove(sequence);
      ExpectSame(queue, naive, 100, At(round));
      if (HasFailure()) return;
    }
  }
}

TEST(SequenceQueue, TheCountOfAReturningSequenceRestarts) {
  SequenceQueue queue(kStep);
  WaitingSequence first{.ticket = 1}, second{.ticket = 2};
  WaitingSequence* const behind[] = {&second};
  queue.Push(&first);
  queue.Push(&second);
  queue.Take(behind);
  EXPECT_EQ(first.overtaken, 1);
  queue.Remove(&first);
  queue.Push(&first);
  EXPECT_EQ(first.overtaken, 0);
}

TEST(SequenceQueue, ARevisedSequenceKeepsItsPlaceAndCount) {
  SequenceQueue queue(kStep);
  WaitingSequence first{.ticket = 1}, second{.ticket = 2}, third{.ticket = 3};
  WaitingSequence* const last[] = {&third};
  for (WaitingSequence* sequence : {&first, &second, &third}) queue.Push(sequence);
  queue.Take(last);
  queue.Revise(&first, {.first_position = 16, .tokens = 4, .running = false});
  EXPECT_EQ(first.overtaken, 1);
  EXPECT_EQ(first.first_position, 16);
  std::vector<WaitingSequence*> front;
  queue.Front(2, &front);
  EXPECT_EQ(front, (std::vector<WaitingSequence*>{&first, &second}));
}

TEST(SequenceQueue, APriorityLevelEqualsAnArrivalLaterByOneStep) {
  SequenceQueue queue(kStep);
  WaitingSequence low{.ticket = 1, .priority = 3, .queued = At(0)};
  WaitingSequence soon{.ticket = 2, .priority = 1, .queued = At(39)};
  WaitingSequence late{.ticket = 3, .priority = 1, .queued = At(41)};
  for (WaitingSequence* sequence : {&late, &low, &soon}) queue.Push(sequence);
  std::vector<WaitingSequence*> front;
  queue.Front(3, &front);
  EXPECT_EQ(front, (std::vector<WaitingSequence*>{&soon, &low, &late}));
}

TEST(SequenceQueueDeathTest, AddingOrTakingASequenceTwiceBreaksAnInvariant) {
  SequenceQueue queue(kStep);
  WaitingSequence sequence{.ticket = 1, .tokens = 3};
  WaitingSequence* const taken[] = {&sequence};
  EXPECT_DEATH(queue.Remove(&sequence), "broken invariant");
  EXPECT_DEATH(queue.Take(taken), "broken invariant");
  EXPECT_DEATH(queue.Revise(&sequence, {.tokens = 1}), "broken invariant");
  queue.Push(&sequence);
  EXPECT_DEATH(queue.Push(&sequence), "broken invariant");
}

TEST(SequenceQueue, CountsThePromptsDueByATime) {
  SequenceQueue queue(kStep);
  WaitingSequence early{.ticket = 1, .tokens = 3, .later_tokens = 10, .deadline = At(5)};
  WaitingSequence urgent{.ticket = 2, .priority = 1, .tokens = 100, .deadline = At(6)};
  WaitingSequence running{.ticket = 3, .tokens = 1000, .running = true, .deadline = At(5)};
  WaitingSequence endless{.ticket = 4, .tokens = 10000};
  for (WaitingSequence* sequence : {&early, &urgent, &running, &endless}) queue.Push(sequence);
  using Counts = std::pair<int64_t, int64_t>;
  const auto due_by = [&queue](int64_t ms, int priority) {
    const DueTotals::Total prompts = queue.PromptsDueBy(At(ms), priority);
    return Counts(prompts.sequences, prompts.tokens);
  };
  EXPECT_EQ(due_by(4, 3), Counts(0, 0));
  EXPECT_EQ(due_by(5, 3), Counts(1, 13));
  EXPECT_EQ(due_by(6, 3), Counts(2, 113));
  EXPECT_EQ(due_by(6, 1), Counts(1, 100));
  queue.Revise(&early, {.first_position = 3, .tokens = 10, .running = true});
  EXPECT_EQ(due_by(5, 3), Counts(0, 0));
  queue.Revise(&running, {.tokens = 1000, .running = false});
  EXPECT_EQ(due_by(5, 3), Counts(1, 1000));
}

}  // namespace
}  // namespace sluice
