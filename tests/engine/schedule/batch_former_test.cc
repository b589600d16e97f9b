#include "engine/schedule/batch_former.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/scheduling.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

// The capacities are tokens and sequences.
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
  int64_t deadline_us = 0;  // 0 means no deadline
};

struct BaselineFormerRow {
  const char* name;
  PolicyKind policy = PolicyKind::kFifoPacked;
  std::vector<Waiting> queue;
  int64_t delay_us = 0;
  bool draining = false;
  int64_t now_us = 1000;
  // The expected batch.
  int32_t sequences = 0;
  int32_t tokens = 0;
  int32_t bucket_tokens = 0;
  Trigger trigger = Trigger::kIdle;
  int64_t wait_until_us = 0;      // if nothing is launched; 0 means until an arrival
  std::vector<uint64_t> batch{};  // tickets (places in the queue); empty means the first ones
  int32_t max_overtakes = 64;
};
class BaselineFormerTable : public TableTest<BaselineFormerRow> {};

TEST_P(BaselineFormerTable, FormsItsBatch) {
  CostModel costs;
  for (int i = 0; i < 100; ++i) {
    costs.Observe({.bucket = PackedLadder().buckets()[0], .computed_tokens = 5}, 100e-6);
  }
  std::vector<WaitingSequence> sequences;
  for (const Waiting& waiting : row().queue) {
    sequences.push_back({.ticket = sequences.size(),
                         .tokens = waiting.tokens,
                         .queued = AtMicroseconds(waiting.queued_us),
                         .deadline = waiting.deadline_us == 0
                                         ? MonoTime::max()
                                         : AtMicroseconds(waiting.deadline_us)});
  }
  SequenceQueue queue{nanoseconds(0)};
  for (WaitingSequence& sequence : sequences) queue.Push(&sequence);
  std::vector<WaitingSequence*> batch;
  const auto former = MakeBatchFormer({.policy = row().policy,
                                       .max_queue_delay_us = row().delay_us,
                                       .max_overtakes = row().max_overtakes});
  const BatchDecision decision = former->Form(
      queue, {.ladder = &LadderOf(row().policy), .costs = &costs, .draining = row().draining},
      AtMicroseconds(row().now_us), &batch);
  ASSERT_EQ(decision.launch, row().sequences > 0);
  ASSERT_EQ(batch.size(), static_cast<size_t>(row().sequences));
  for (size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(batch[i]->ticket, row().batch.empty() ? i : row().batch[i]);
  }
  if (row().sequences > 0) {
    EXPECT_EQ(decision.size.sequences, row().sequences);
    EXPECT_EQ(decision.size.tokens, row().tokens);
    EXPECT_EQ(decision.bucket.tokens, row().bucket_tokens);
    EXPECT_EQ(NameOf(decision.trigger), NameOf(row().trigger));
  } else {
    const MonoTime expected =
        row().wait_until_us == 0 ? MonoTime::max() : AtMicroseconds(row().wait_until_us);
    EXPECT_LT((decision.wait_until - expected).count(), 1000);  // ns, because the cost was learned
    EXPECT_LT((expected - decision.wait_until).count(), 1000);
    EXPECT_EQ(decision.wait_reason,
              row().queue.empty() ? WaitReason::kEmpty : WaitReason::kMoreRequests);
  }
}

const BaselineFormerRow kBaselineFormerRows[] = {
    {.name = "AnEmptyQueueLaunchesNothing", .queue = {}},
    {.name = "AnEmptyQueueLaunchesNothingWhileDraining", .queue = {}, .draining = true},
    {.name = "OneSequenceLaunchesAtOnceWithoutADelay",
     .queue = {{.tokens = 5, .queued_us = 1000}},
     .sequences = 1,
     .tokens = 5,
     .bucket_tokens = 16,
     .trigger = Trigger::kIdle},
    {.name = "AllWaitingSequencesRunTogether",
     .queue = {{.tokens = 5}, {.tokens = 6}, {.tokens = 7}},
     .sequences = 3,
     .tokens = 18,
     .bucket_tokens = 32,
     .trigger = Trigger::kIdle},
    {.name = "TheNumberOfSequencesAlsoChoosesTheBucket",
     .queue = {{.tokens = 1}, {.tokens = 1}, {.tokens = 1}},
     .sequences = 3,
     .tokens = 3,
     .bucket_tokens = 32,
     .trigger = Trigger::kIdle},
    {.name = "ABucketIsFilledExactly",
     .queue = {{.tokens = 10}, {.tokens = 6}},
     .sequences = 2,
     .tokens = 16,
     .bucket_tokens = 16,
     .trigger = Trigger::kIdle},
    {.name = "TokensLimitThePrefix",
     .queue = {{.tokens = 60}, {.tokens = 40}, {.tokens = 1}},
     .delay_us = 500,
     .now_us = 0,
     .sequences = 2,
     .tokens = 100,
     .bucket_tokens = 100,
     .trigger = Trigger::kFull},
    {.name = "ThePrefixIsNotReorderedToFillUp",
     .queue = {{.tokens = 60}, {.tokens = 50}, {.tokens = 1}},
     .delay_us = 500,
     .now_us = 0,
     .sequences = 1,
     .tokens = 60,
     .bucket_tokens = 100,
     .trigger = Trigger::kFull},
    {.name = "SequencesLimitThePrefix",
     .queue = {{.tokens = 1}, {.tokens = 1}, {.tokens = 1}, {.tokens = 1}, {.tokens = 1}},
     .delay_us = 500,
     .now_us = 0,
     .sequences = 4,
     .tokens = 4,
     .bucket_tokens = 32,
     .trigger = Trigger::kFull},
    {.name = "TheExactNumberOfSequencesIsFull",
     .queue = {{.tokens = 1}, {.tokens = 1}, {.tokens = 1}, {.tokens = 1}},
     .delay_us = 500,
     .now_us = 0,
     .sequences = 4,
     .tokens = 4,
     .bucket_tokens = 32,
     .trigger = Trigger::kFull},
    {.name = "TheExactNumberOfTokensIsFull",
     .queue = {{.tokens = 100}},
     .delay_us = 500,
     .now_us = 0,
     .sequences = 1,
     .tokens = 100,
     .bucket_tokens = 100,
     .trigger = Trigger::kFull},
    {.name = "ABatchIsDelayedUntilTheOldestHasWaited",
     .queue = {{.tokens = 5, .queued_us = 900}, {.tokens = 5, .queued_us = 950}},
     .delay_us = 500,
     .wait_until_us = 1400},
    {.name = "TheOldestSequenceNeedNotBeTheHead",
     .queue = {{.tokens = 5, .queued_us = 950}, {.tokens = 5, .queued_us = 900}},
     .delay_us = 500,
     .wait_until_us = 1400},
    {.name = "ABatchIsLaunchedWhenTheOldestHasWaited",
     .queue = {{.tokens = 5, .queued_us = 500}, {.tokens = 5, .queued_us = 950}},
     .delay_us = 500,
     .sequences = 2,
     .tokens = 10,
     .bucket_tokens = 16,
     .trigger = Trigger::kDelay},
    // A replay of the smallest bucket costs 100 us.
    {.name = "ABatchIsNotDelayedBeyondADeadline",
     .queue = {{.tokens = 5, .queued_us = 900, .deadline_us = 1300}},
     .delay_us = 500,
     .wait_until_us = 1100},
    {.name = "ABatchIsLaunchedWhenADeadlineRequiresIt",
     .queue = {{.tokens = 5, .queued_us = 900, .deadline_us = 1200}},
     .delay_us = 500,
     .sequences = 1,
     .tokens = 5,
     .bucket_tokens = 16,
     .trigger = Trigger::kDeadline},
    {.name = "ADistantDeadlineChangesNothing",
     .queue = {{.tokens = 5, .queued_us = 900, .deadline_us = 5000}},
     .delay_us = 500,
     .wait_until_us = 1400},
    {.name = "DrainingDelaysNoBatch",
     .queue = {{.tokens = 5, .queued_us = 900}},
     .delay_us = 500,
     .draining = true,
     .sequences = 1,
     .tokens = 5,
     .bucket_tokens = 16,
     .trigger = Trigger::kDrain},
    {.name = "AFullBatchIsFullWhileDraining",
     .queue = {{.tokens = 60}, {.tokens = 50}},
     .draining = true,
     .sequences = 1,
     .tokens = 60,
     .bucket_tokens = 100,
     .trigger = Trigger::kFull},
    {.name = "PaddedRowsAndPositionsAreRoundedUpSeparately",
     .policy = PolicyKind::kPaddedBuckets,
     .queue = {{.tokens = 3}, {.tokens = 8}, {.tokens = 1}},
     .sequences = 3,
     .tokens = 12,
     .bucket_tokens = 32},
    {.name = "PaddedRowsOfTheHeadsColumnComeFromTheWindow",
     .policy = PolicyKind::kPaddedBuckets,
     .queue = {{.tokens = 3}, {.tokens = 9}, {.tokens = 8}, {.tokens = 1}},
     .sequences = 3,
     .tokens = 12,
     .bucket_tokens = 32,
     .trigger = Trigger::kFull,
     .batch = {0, 2, 3}},
    {.name = "PaddedShorterRowsDoNotJoinTheHeadsWiderColumn",
     .policy = PolicyKind::kPaddedBuckets,
     .queue = {{.tokens = 9}, {.tokens = 3}, {.tokens = 16}},
     .sequences = 2,
     .tokens = 25,
     .bucket_tokens = 32,
     .trigger = Trigger::kFull,
     .batch = {0, 2}},
    {.name = "PaddedRowsDoNotExceedTheColumn",
     .policy = PolicyKind::kPaddedBuckets,
     .queue = {{.tokens = 9}, {.tokens = 9}, {.tokens = 9}, {.tokens = 9}},
     .sequences = 3,
     .tokens = 27,
     .bucket_tokens = 48,
     .trigger = Trigger::kFull},
    {.name = "NoPaddedColumnIsOvertakenTooOften",
     .policy = PolicyKind::kPaddedBuckets,
     .queue = {{.tokens = 3}, {.tokens = 9}, {.tokens = 8}, {.tokens = 1}},
     .sequences = 2,
     .tokens = 11,
     .bucket_tokens = 16,
     .trigger = Trigger::kFull,
     .batch = {0, 2},
     .max_overtakes = 1},
    {.name = "PaddedRowsAreStrictlyInOrderWithoutOvertaking",
     .policy = PolicyKind::kPaddedBuckets,
     .queue = {{.tokens = 3}, {.tokens = 9}, {.tokens = 8}},
     .sequences = 1,
     .tokens = 3,
     .bucket_tokens = 8,
     .trigger = Trigger::kFull,
     .max_overtakes = 0},
    {.name = "AStaticBatchIsCutToAPreferredSize",
     .policy = PolicyKind::kStaticPadded,
     .queue = {{.tokens = 3}, {.tokens = 9}, {.tokens = 1}},
     .sequences = 2,
     .tokens = 12,
     .bucket_tokens = 32},
    {.name = "AStaticBatchBelowTheLargestPreferredSizeIsDelayed",
     .policy = PolicyKind::kStaticPadded,
     .queue = {{.tokens = 3, .queued_us = 900},
               {.tokens = 9, .queued_us = 900},
               {.tokens = 1, .queued_us = 900}},
     .delay_us = 500,
     .wait_until_us = 1400},
    {.name = "AStaticBatchTakesAllWhenTheDelayIsOver",
     .policy = PolicyKind::kStaticPadded,
     .queue = {{.tokens = 3, .queued_us = 400},
               {.tokens = 9, .queued_us = 900},
               {.tokens = 1, .queued_us = 900}},
     .delay_us = 500,
     .sequences = 3,
     .tokens = 13,
     .bucket_tokens = 64,
     .trigger = Trigger::kDelay},
};
SLUICE_TABLE(BaselineFormerTable, kBaselineFormerRows);

TEST(BaselineFormer, TheDelayStartsAtTheOldestSequenceNotTheHead) {
  WaitingSequence old{.ticket = 1, .priority = 3, .tokens = 5, .queued = AtMicroseconds(900)};
  WaitingSequence head{.ticket = 2, .priority = 1, .tokens = 5, .queued = AtMicroseconds(950)};
  SequenceQueue queue{std::chrono::seconds(1)};
  queue.Push(&old);
  queue.Push(&head);
  const CostModel costs;
  std::vector<WaitingSequence*> batch;
  const auto former =
      MakeBatchFormer({.policy = PolicyKind::kFifoPacked, .max_queue_delay_us = 500});
  const FormerInputs inputs{.ladder = &PackedLadder(), .costs = &costs};
  EXPECT_EQ(former->Form(queue, inputs, AtMicroseconds(1000), &batch).wait_until,
            AtMicroseconds(1400));
}

TEST(BatchFormerDeathTest, AHeadThatFitsNoBucketBreaksAnInvariant) {
  WaitingSequence sequence{.tokens = 101};
  SequenceQueue queue{nanoseconds(0)};
  queue.Push(&sequence);
  const CostModel costs;
  std::vector<WaitingSequence*> batch;
  for (PolicyKind policy : {PolicyKind::kFifoPacked, PolicyKind::kPacked}) {
    EXPECT_DEATH(
        MakeBatchFormer({.policy = policy})
            ->Form(queue, {.ladder = &PackedLadder(), .costs = &costs}, AtMicroseconds(0), &batch),
        "broken invariant");
  }
}

}  // namespace
}  // namespace sluice
