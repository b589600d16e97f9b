#include "engine/schedule/cut_and_fill.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

MonoTime At(int64_t us) { return MonoTime(std::chrono::microseconds(us)); }

const Ladder& TestLadder() {
  static const Ladder ladder({{.tokens = 100, .sequences = 8},
                              {.tokens = 400, .sequences = 8},
                              {.tokens = 1000, .sequences = 8}});
  return ladder;
}

// 10 us and 1 us per bucket token.
const CostModel& TestCosts() {
  static const CostModel costs = [] {
    CostModel model;
    for (int i = 0; i < 300; ++i) {
      for (const Bucket& bucket : TestLadder().buckets()) {
        model.Observe({.bucket = bucket, .computed_tokens = 1}, 10e-6 + 1e-6 * bucket.tokens);
      }
    }
    return model;
  }();
  return costs;
}

struct Waiting {
  int32_t tokens;
  int64_t deadline_us = 0;  // 0: none
  int32_t overtaken = 0;
};

struct Case {
  std::string name;
  std::vector<Waiting> queue;
  std::vector<uint64_t> batch;  // expected tickets, which are places in the queue
  int32_t bucket_tokens;
  Trigger trigger = Trigger::kFull;
  int32_t max_overtakes = 64;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"all that fits goes", {{300}, {60}}, {0, 1}, 400, Trigger::kIdle},
      {"a cut goes that wastes less than all of it", {{390}, {200}}, {0}, 400},
      {"all of it goes if a cut would waste no less", {{350}, {600}}, {0, 1}, 1000, Trigger::kIdle},
      {"what a cut leaves is filled from further back", {{300}, {800}, {100}}, {0, 2}, 400},
      {"the largest sequence that fits fills a batch",
       {{600}, {900}, {100}, {390}, {10}},
       {0, 3, 4},
       1000},
      {"of equal sequences the earlier fills a batch", {{990}, {900}, {10}, {10}}, {0, 2}, 1000},
      {"without overtaking the order is strict",
       {{300}, {800}, {100}},
       {0},
       400,
       Trigger::kFull,
       0},
      {"a sequence that was overtaken too often is a barrier",
       {{300}, {800, 0, 5}, {100}},
       {0},
       400,
       Trigger::kFull,
       5},
      {"a sequence that may be overtaken once more lets one pass",
       {{600}, {900, 0, 4}, {390}, {10}},
       {0, 2},
       1000,
       Trigger::kFull,
       5},
      {"the number of sequences bounds a batch too",
       {{1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}},
       {0, 1, 2, 3, 4, 5, 6, 7},
       100},
      // A full batch takes 1010 us.
      {"an urgent sequence goes first", {{900}, {950}, {90, 1500}}, {0, 2}, 1000},
      {"an urgent sequence goes in the place of the head",
       {{950}, {900, 1500}, {90}},
       {1, 2},
       1000},
      {"the earliest deadline goes first", {{900, 1900}, {900, 1500}, {900, 1800}}, {1}, 1000},
      {"a distant deadline changes nothing", {{950}, {900, 50'000}}, {0}, 1000},
      {"urgency passes no barrier", {{950, 0, 5}, {900, 1500}}, {0}, 1000, Trigger::kFull, 5},
      {"a sequence that would be late is excluded", {{900, 200}, {950}}, {1}, 1000},
      {"sequences that are all late are served nevertheless",
       {{900, 200}, {90, 50}},
       {0, 1},
       1000,
       Trigger::kIdle},
      {"a short batch goes to be in time", {{300, 600}, {900}}, {0}, 400},
      {"being in time has a price that is not paid", {{20, 120}, {980}}, {1}, 1000},
  };
  return cases;
}

class FixedQueue {
 public:
  explicit FixedQueue(const std::vector<Waiting>& waiting) : sequences_(waiting.size()) {
    for (size_t i = 0; i < waiting.size(); ++i) {
      sequences_[i] = {.ticket = i, .tokens = waiting[i].tokens};
      if (waiting[i].deadline_us != 0) sequences_[i].deadline = At(waiting[i].deadline_us);
      queue_.Push(&sequences_[i]);
      sequences_[i].overtaken = waiting[i].overtaken;
    }
  }
  const SequenceQueue& queue() const { return queue_; }

 private:
  std::vector<WaitingSequence> sequences_;
  SequenceQueue queue_{nanoseconds(0)};
};

void PrintTo(const Case& row, std::ostream* out) { *out << row.name; }

class CutAndFillTable : public ::testing::TestWithParam<Case> {};

TEST_P(CutAndFillTable, FormsTheRowsBatch) {
  const Case& c = GetParam();
  const FixedQueue fixed(c.queue);
  std::vector<WaitingSequence*> batch;
  CutAndFill former({.max_overtakes = c.max_overtakes});
  const BatchDecision decision =
      former.Form(fixed.queue(), {.ladder = &TestLadder(), .costs = &TestCosts()}, At(0), &batch);
  ASSERT_TRUE(decision.launch);
  std::vector<uint64_t> tickets;
  for (const WaitingSequence* sequence : batch) tickets.push_back(sequence->ticket);
  EXPECT_EQ(tickets, c.batch);
  EXPECT_EQ(decision.bucket.tokens, c.bucket_tokens);
  EXPECT_EQ(NameOf(decision.trigger), NameOf(c.trigger));
}

INSTANTIATE_TEST_SUITE_P(CutAndFill, CutAndFillTable, ::testing::ValuesIn(Cases()), RowName<Case>);

TEST(CutAndFill, KeepsItsPromisesOnRandomQueues) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<Waiting> waiting(1 + random() % 60);
    for (Waiting& w : waiting) {
      w.tokens = 1 + static_cast<int32_t>(random() % (random() % 2 == 0 ? 1000 : 100));
      w.overtaken = static_cast<int32_t>(random() % 6);
      if (random() % 8 == 0) w.deadline_us = 1 + static_cast<int64_t>(random() % 4000);
    }
    const FixedQueue fixed(waiting);
    CutAndFill former({.max_overtakes = 5});
    std::vector<WaitingSequence*> batch, all;
    const BatchDecision decision =
        former.Form(fixed.queue(), {.ladder = &TestLadder(), .costs = &TestCosts()}, At(0), &batch);
    ASSERT_TRUE(decision.launch);
    ASSERT_FALSE(batch.empty());
    BatchSize size{};
    for (const WaitingSequence* sequence : batch) {
      size.tokens += sequence->tokens;
      ++size.sequences;
      size.longest = std::max(size.longest, sequence->tokens);
    }
    EXPECT_EQ(size, decision.size);
    EXPECT_TRUE(decision.bucket.Fits(size));

    fixed.queue().Front(waiting.size(), &all);
    const MonoTime end = At(0) + std::chrono::microseconds(decision.bucket.tokens + 11);
    auto taken = batch.begin();
    for (const WaitingSequence* sequence : all) {  // in order, each at most once
      if (taken != batch.end() && *taken == sequence) {
        ++taken;
      } else if (sequence->deadline > At(1011)) {  // not left to expire
        const auto passing = static_cast<int32_t>(batch.end() - taken);
        EXPECT_LE(sequence->overtaken + passing, std::max(5, sequence->overtaken));
      }
    }
    EXPECT_EQ(taken, batch.end());
    const bool in_time = std::any_of(batch.begin(), batch.end(), [&](const auto* sequence) {
      return sequence->deadline >= end;
    });
    const bool somebody_may_be = std::any_of(all.begin(), all.end(), [&](const auto* sequence) {
      return sequence->deadline > At(1011);
    });
    EXPECT_TRUE(in_time || !somebody_may_be);
  }
}

// With small requests at a high rate waiting saves the fixed part of steps; with large ones, or
// few, it does not.
TEST(CutAndFill, WaitsWhileTheNewcomerGainsMoreThanTheOthersLose) {
  struct {
    int32_t tokens;
    double per_second;
    int waiting;
    bool waits;
  } const cases[] = {
      {10, 1e6, 1, true}, {10, 1e6, 50, false}, {10, 1e3, 1, false}, {450, 1e6, 1, false}};
  const Ladder ladder({{.tokens = 20, .sequences = 64},
                       {.tokens = 100, .sequences = 64},
                       {.tokens = 1000, .sequences = 64}});
  CostModel costs;  // 60 us and 0.2 us per computed token
  for (int i = 0; i < 300; ++i) {
    for (int32_t tokens : {10, 100, 1000}) {
      costs.Observe({.bucket = ladder.largest(), .computed_tokens = tokens},
                    60e-6 + 0.2e-6 * tokens);
    }
  }
  for (const auto& c : cases) {
    SCOPED_TRACE(c.tokens * c.per_second + c.waiting);
    const FixedQueue fixed(
        std::vector<Waiting>(static_cast<size_t>(c.waiting), Waiting{.tokens = c.tokens}));
    std::vector<WaitingSequence*> batch;
    const FormerInputs inputs{.ladder = &ladder,
                              .costs = &costs,
                              .arrivals = {.sequences_per_second = c.per_second,
                                           .tokens_per_second = c.per_second * c.tokens}};
    CutAndFill former({.max_queue_delay_us = 500});
    const BatchDecision early = former.Form(fixed.queue(), inputs, At(100), &batch);
    EXPECT_EQ(early.launch, !c.waits);
    if (c.waits) {
      EXPECT_EQ(early.wait_until, At(500));
    }
    const BatchDecision due = former.Form(fixed.queue(), inputs, At(500), &batch);
    EXPECT_TRUE(due.launch);
    EXPECT_EQ(due.trigger, Trigger::kDelay);
    EXPECT_TRUE(CutAndFill({}).Form(fixed.queue(), inputs, At(100), &batch).launch);
    FormerInputs draining = inputs;
    draining.draining = true;
    EXPECT_TRUE(former.Form(fixed.queue(), draining, At(100), &batch).launch);
  }
}

}  // namespace
}  // namespace sluice
