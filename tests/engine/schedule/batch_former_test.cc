#include "engine/schedule/batch_former.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

MonoTime At(int64_t us) { return MonoTime(std::chrono::microseconds(us)); }

// Capacities in tokens and sequences.
const Ladder& PackedLadder() {
  static const Ladder ladder({{.tokens = 16, .sequences = 2},
                              {.tokens = 32, .sequences = 4},
                              {.tokens = 100, .sequences = 4}});
  return ladder;
}

const Ladder& PaddedLadder() {
  static const Ladder ladder({Bucket::Padded(1, 8), Bucket::Padded(2, 8), Bucket::Padded(4, 8),
                              Bucket::Padded(1, 16), Bucket::Padded(2, 16), Bucket::Padded(3, 16)});
  return ladder;
}

const Ladder& StaticLadder() {
  static const Ladder ladder({Bucket::Padded(1, 16), Bucket::Padded(2, 16), Bucket::Padded(4, 16)});
  return ladder;
}

const Ladder& LadderOf(PolicyKind policy) {
  if (policy == PolicyKind::kPaddedBuckets) return PaddedLadder();
  return policy == PolicyKind::kStaticPadded ? StaticLadder() : PackedLadder();
}

struct Waiting {
  int32_t tokens;
  int64_t queued_us = 0;
  int64_t deadline_us = 0;  // 0: none
};

struct Case {
  std::string name;
  PolicyKind policy = PolicyKind::kFifoPacked;
  std::vector<Waiting> queue;
  int64_t delay_us = 0;
  bool draining = false;
  int64_t now_us = 1000;
  // Expected.
  int32_t sequences = 0;
  int32_t tokens = 0;
  int32_t bucket_tokens = 0;
  Trigger trigger = Trigger::kIdle;
  int64_t wait_until_us = 0;      // 0: for ever; when sequences is 0
  std::vector<uint64_t> batch{};  // tickets, which are places in the queue; empty: the first ones
  int32_t max_overtakes = 64;
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
       .trigger = Trigger::kDeadline},
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
      {.name = "padded: rows and positions are rounded up apart",
       .policy = PolicyKind::kPaddedBuckets,
       .queue = {{3}, {8}, {1}},
       .sequences = 3,
       .tokens = 12,
       .bucket_tokens = 32},
      {.name = "padded: those of the head's column, from further back",
       .policy = PolicyKind::kPaddedBuckets,
       .queue = {{3}, {9}, {8}, {1}},
       .sequences = 3,
       .tokens = 12,
       .bucket_tokens = 32,
       .trigger = Trigger::kFull,
       .batch = {0, 2, 3}},
      {.name = "padded: shorter ones do not ride in the head's wider column",
       .policy = PolicyKind::kPaddedBuckets,
       .queue = {{9}, {3}, {16}},
       .sequences = 2,
       .tokens = 25,
       .bucket_tokens = 32,
       .trigger = Trigger::kFull,
       .batch = {0, 2}},
      {.name = "padded: no more than the column is tall",
       .policy = PolicyKind::kPaddedBuckets,
       .queue = {{9}, {9}, {9}, {9}},
       .sequences = 3,
       .tokens = 27,
       .bucket_tokens = 48,
       .trigger = Trigger::kFull},
      {.name = "padded: no column is passed over too often",
       .policy = PolicyKind::kPaddedBuckets,
       .queue = {{3}, {9}, {8}, {1}},
       .sequences = 2,
       .tokens = 11,
       .bucket_tokens = 16,
       .trigger = Trigger::kFull,
       .batch = {0, 2},
       .max_overtakes = 1},
      {.name = "padded: strictly in order without overtaking",
       .policy = PolicyKind::kPaddedBuckets,
       .queue = {{3}, {9}, {8}},
       .sequences = 1,
       .tokens = 3,
       .bucket_tokens = 8,
       .trigger = Trigger::kFull,
       .max_overtakes = 0},
      {.name = "static: cut to a preferred size",
       .policy = PolicyKind::kStaticPadded,
       .queue = {{3}, {9}, {1}},
       .sequences = 2,
       .tokens = 12,
       .bucket_tokens = 32},
      {.name = "static: held back below the largest preferred size",
       .policy = PolicyKind::kStaticPadded,
       .queue = {{3, 900}, {9, 900}, {1, 900}},
       .delay_us = 500,
       .wait_until_us = 1400},
      {.name = "static: all that waits when the delay is over",
       .policy = PolicyKind::kStaticPadded,
       .queue = {{3, 400}, {9, 900}, {1, 900}},
       .delay_us = 500,
       .sequences = 3,
       .tokens = 13,
       .bucket_tokens = 64,
       .trigger = Trigger::kDelay},
  };
  return cases;
}

void PrintTo(const Case& row, std::ostream* out) { *out << row.name; }

class BaselineFormerTable : public ::testing::TestWithParam<Case> {};

TEST_P(BaselineFormerTable, DecidesAsTheRowSays) {
  const Case& c = GetParam();
  CostModel costs;
  for (int i = 0; i < 100; ++i) {
    costs.Observe({.bucket = PackedLadder().buckets()[0], .computed_tokens = 5}, 100e-6);
  }
  std::vector<WaitingSequence> sequences;
  for (const Waiting& waiting : c.queue) {
    sequences.push_back(
        {.ticket = sequences.size(),
         .tokens = waiting.tokens,
         .queued = At(waiting.queued_us),
         .deadline = waiting.deadline_us == 0 ? MonoTime::max() : At(waiting.deadline_us)});
  }
  SequenceQueue queue{nanoseconds(0)};
  for (WaitingSequence& sequence : sequences) queue.Push(&sequence);
  std::vector<WaitingSequence*> batch;
  const auto former = MakeBatchFormer(
      {.policy = c.policy, .max_queue_delay_us = c.delay_us, .max_overtakes = c.max_overtakes});
  const BatchDecision decision =
      former->Form(queue, {.ladder = &LadderOf(c.policy), .costs = &costs, .draining = c.draining},
                   At(c.now_us), &batch);
  ASSERT_EQ(decision.launch, c.sequences > 0);
  ASSERT_EQ(batch.size(), static_cast<size_t>(c.sequences));
  for (size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(batch[i]->ticket, c.batch.empty() ? i : c.batch[i]);
  }
  if (c.sequences > 0) {
    EXPECT_EQ(decision.size.sequences, c.sequences);
    EXPECT_EQ(decision.size.tokens, c.tokens);
    EXPECT_EQ(decision.bucket.tokens, c.bucket_tokens);
    EXPECT_EQ(NameOf(decision.trigger), NameOf(c.trigger));
  } else {
    const MonoTime expected = c.wait_until_us == 0 ? MonoTime::max() : At(c.wait_until_us);
    EXPECT_LT((decision.wait_until - expected).count(), 1000);  // ns: the cost was learned
    EXPECT_LT((expected - decision.wait_until).count(), 1000);
    EXPECT_EQ(decision.wait_reason, c.queue.empty() ? WaitReason::kEmpty : WaitReason::kCompany);
  }
}

INSTANTIATE_TEST_SUITE_P(BatchFormer, BaselineFormerTable, ::testing::ValuesIn(Cases()),
                         RowName<Case>);

TEST(BaselineFormer, TheDelayIsThatOfTheOldestNotOfTheHead) {
  WaitingSequence old{.ticket = 1, .priority = 3, .tokens = 5, .queued = At(900)};
  WaitingSequence head{.ticket = 2, .priority = 1, .tokens = 5, .queued = At(950)};
  SequenceQueue queue{std::chrono::seconds(1)};
  queue.Push(&old);
  queue.Push(&head);
  const CostModel costs;
  std::vector<WaitingSequence*> batch;
  const auto former =
      MakeBatchFormer({.policy = PolicyKind::kFifoPacked, .max_queue_delay_us = 500});
  const FormerInputs inputs{.ladder = &PackedLadder(), .costs = &costs};
  EXPECT_EQ(former->Form(queue, inputs, At(1000), &batch).wait_until, At(1400));
}

TEST(BatchFormerDeathTest, AHeadThatFitsNothing) {
  WaitingSequence sequence{.tokens = 101};
  SequenceQueue queue{nanoseconds(0)};
  queue.Push(&sequence);
  const CostModel costs;
  std::vector<WaitingSequence*> batch;
  for (PolicyKind policy : {PolicyKind::kFifoPacked, PolicyKind::kCutAndFill}) {
    EXPECT_DEATH(MakeBatchFormer({.policy = policy})
                     ->Form(queue, {.ladder = &PackedLadder(), .costs = &costs}, At(0), &batch),
                 "broken invariant");
  }
}

}  // namespace
}  // namespace sluice
