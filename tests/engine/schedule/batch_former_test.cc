#include "engine/schedule/batch_former.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

MonoTime At(int64_t us) { return MonoTime(std::chrono::microseconds(us)); }

// Capacities in tokens and sequences.
const Ladder& TestLadder() {
  static const Ladder ladder({{.tokens = 16, .sequences = 2},
                              {.tokens = 32, .sequences = 4},
                              {.tokens = 100, .sequences = 4}});
  return ladder;
}

struct Waiting {
  int32_t tokens;
  int64_t queued_us = 0;
  int64_t deadline_us = 0;  // 0: none
};

struct Case {
  std::string name;
  std::vector<Waiting> queue;
  int64_t delay_us = 0;
  bool draining = false;
  int64_t now_us = 1000;
  // Expected.
  int32_t sequences = 0;
  int32_t tokens = 0;
  int32_t bucket_tokens = 0;
  Trigger trigger = Trigger::kIdle;
  int64_t wait_until_us = 0;  // 0: for ever; when sequences is 0
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {.name = "nothing waits", .queue = {}},
      {.name = "nothing waits while draining", .queue = {}, .draining = true},
      {.name = "one launches at once without a delay",
       .queue = {{5, 1000}},
       .sequences = 1,
       .tokens = 5,
       .bucket_tokens = 16,
       .trigger = Trigger::kIdle},
      {.name = "all that wait go together",
       .queue = {{5}, {6}, {7}},
       .sequences = 3,
       .tokens = 18,
       .bucket_tokens = 32,
       .trigger = Trigger::kIdle},
      {.name = "sequences choose the bucket too",
       .queue = {{1}, {1}, {1}},
       .sequences = 3,
       .tokens = 3,
       .bucket_tokens = 32,
       .trigger = Trigger::kIdle},
      {.name = "a bucket is filled exactly",
       .queue = {{10}, {6}},
       .sequences = 2,
       .tokens = 16,
       .bucket_tokens = 16,
       .trigger = Trigger::kIdle},
      {.name = "tokens bound the prefix",
       .queue = {{60}, {40}, {1}},
       .delay_us = 500,
       .now_us = 0,
       .sequences = 2,
       .tokens = 100,
       .bucket_tokens = 100,
       .trigger = Trigger::kFull},
      {.name = "the prefix is not reordered to fill up",
       .queue = {{60}, {50}, {1}},
       .delay_us = 500,
       .now_us = 0,
       .sequences = 1,
       .tokens = 60,
       .bucket_tokens = 100,
       .trigger = Trigger::kFull},
      {.name = "sequences bound the prefix",
       .queue = {{1}, {1}, {1}, {1}, {1}},
       .delay_us = 500,
       .now_us = 0,
       .sequences = 4,
       .tokens = 4,
       .bucket_tokens = 32,
       .trigger = Trigger::kFull},
      {.name = "exactly as many sequences as fit are full",
       .queue = {{1}, {1}, {1}, {1}},
       .delay_us = 500,
       .now_us = 0,
       .sequences = 4,
       .tokens = 4,
       .bucket_tokens = 32,
       .trigger = Trigger::kFull},
      {.name = "exactly as many tokens as fit are full",
       .queue = {{100}},
       .delay_us = 500,
       .now_us = 0,
       .sequences = 1,
       .tokens = 100,
       .bucket_tokens = 100,
       .trigger = Trigger::kFull},
      {.name = "held back until the oldest has waited",
       .queue = {{5, 900}, {5, 950}},
       .delay_us = 500,
       .wait_until_us = 1400},
      {.name = "the oldest need not be the head",
       .queue = {{5, 950}, {5, 900}},
       .delay_us = 500,
       .wait_until_us = 1400},
      {.name = "launched when the oldest has waited",
       .queue = {{5, 500}, {5, 950}},
       .delay_us = 500,
       .sequences = 2,
       .tokens = 10,
       .bucket_tokens = 16,
       .trigger = Trigger::kDelay},
      // A replay of the smallest bucket costs 100 us.
      {.name = "held back no longer than a deadline allows",
       .queue = {{5, 900, 1300}},
       .delay_us = 500,
       .wait_until_us = 1100},
      {.name = "launched when a deadline allows no more",
       .queue = {{5, 900, 1200}},
       .delay_us = 500,
       .sequences = 1,
       .tokens = 5,
       .bucket_tokens = 16,
       .trigger = Trigger::kDelay},
      {.name = "a distant deadline changes nothing",
       .queue = {{5, 900, 5000}},
       .delay_us = 500,
       .wait_until_us = 1400},
      {.name = "draining holds nothing back",
       .queue = {{5, 900}},
       .delay_us = 500,
       .draining = true,
       .sequences = 1,
       .tokens = 5,
       .bucket_tokens = 16,
       .trigger = Trigger::kDrain},
      {.name = "full is full while draining",
       .queue = {{60}, {50}},
       .draining = true,
       .sequences = 1,
       .tokens = 60,
       .bucket_tokens = 100,
       .trigger = Trigger::kFull},
  };
  return cases;
}

TEST(FormBatch, Table) {
  CostModel costs;
  costs.Observe({.bucket = TestLadder().buckets()[0]}, 100e-6);
  costs.Observe({.bucket = TestLadder().largest()}, 400e-6);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    std::vector<WaitingSequence> sequences;
    for (const Waiting& waiting : c.queue) {
      sequences.push_back(
          {.ticket = sequences.size(),
           .tokens = waiting.tokens,
           .queued = At(waiting.queued_us),
           .deadline = waiting.deadline_us == 0 ? MonoTime::max() : At(waiting.deadline_us)});
    }
    std::vector<const WaitingSequence*> queue;
    for (const WaitingSequence& sequence : sequences) queue.push_back(&sequence);

    const BatchDecision decision = FormBatch(
        queue, TestLadder(), costs,
        {.max_queue_delay = std::chrono::microseconds(c.delay_us), .draining = c.draining},
        At(c.now_us));
    EXPECT_EQ(decision.sequences, c.sequences);
    if (c.sequences > 0) {
      EXPECT_EQ(decision.tokens, c.tokens);
      EXPECT_EQ(decision.bucket.tokens, c.bucket_tokens);
      EXPECT_EQ(decision.trigger, c.trigger);
    } else {
      const MonoTime expected = c.wait_until_us == 0 ? MonoTime::max() : At(c.wait_until_us);
      EXPECT_EQ(decision.wait_until, expected);
    }
  }
}

TEST(FormBatchDeathTest, AHeadThatFitsNothing) {
  const WaitingSequence sequence{.tokens = 101};
  const WaitingSequence* const queue[] = {&sequence};
  EXPECT_DEATH(FormBatch(queue, TestLadder(), CostModel(), {}, At(0)), "broken invariant");
}

}  // namespace
}  // namespace sluice
