#include "engine/schedule/packed_former.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/scheduling.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

const Ladder& TestLadder() {
  static const Ladder ladder({{.tokens = 100, .sequences = 8},
                              {.tokens = 400, .sequences = 8},
                              {.tokens = 1000, .sequences = 8}});
  return ladder;
}

// Steps cost 10 us plus 1 us per token of the bucket.
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
  int64_t deadline_us = 0;  // 0 means no deadline
  int32_t overtaken = 0;
};

FixedQueue QueueOf(const std::vector<Waiting>& waiting) {
  std::vector<WaitingSequence> sequences;
  for (const Waiting& each : waiting) {
    WaitingSequence& sequence =
        sequences.emplace_back(WaitingSequence{.tokens = each.tokens, .overtaken = each.overtaken});
    if (each.deadline_us != 0) sequence.deadline = AtMicroseconds(each.deadline_us);
  }
  return FixedQueue(std::move(sequences));
}

struct PackedFormerRow {
  const char* name;
  std::vector<Waiting> queue;
  std::vector<uint64_t> batch;  // expected tickets (places in the queue)
  int32_t bucket_tokens;
  Trigger trigger = Trigger::kFull;
  int32_t max_overtakes = 64;
};
class PackedFormerTable : public TableTest<PackedFormerRow> {};

TEST_P(PackedFormerTable, FormsItsBatch) {
  const FixedQueue fixed = QueueOf(row().queue);
  std::vector<WaitingSequence*> batch;
  PackedFormer former({.max_overtakes = row().max_overtakes});
  const BatchDecision decision = former.Form(
      fixed.queue(), {.ladder = &TestLadder(), .costs = &TestCosts()}, AtMicroseconds(0), &batch);
  ASSERT_TRUE(decision.launch);
  std::vector<uint64_t> tickets;
  for (const WaitingSequence* sequence : batch) tickets.push_back(sequence->ticket);
  EXPECT_EQ(tickets, row().batch);
  EXPECT_EQ(decision.bucket.tokens, row().bucket_tokens);
  EXPECT_EQ(NameOf(decision.trigger), NameOf(row().trigger));
}

const PackedFormerRow kPackedRows[] = {
    {.name = "AllSequencesThatFitRun",
     .queue = {{.tokens = 300}, {.tokens = 60}},
     .batch = {0, 1},
     .bucket_tokens = 400,
     .trigger = Trigger::kIdle},
    {.name = "CutsTheBatchIfThatWastesLess",
     .queue = {{.tokens = 390}, {.tokens = 200}},
     .batch = {0},
     .bucket_tokens = 400},
    {.name = "DoesNotCutTheBatchIfThatWastesTheSame",
     .queue = {{.tokens = 350}, {.tokens = 600}},
     .batch = {0, 1},
     .bucket_tokens = 1000,
     .trigger = Trigger::kIdle},
    {.name = "RoomAfterTheCutIsFilledFromTheWindow",
     .queue = {{.tokens = 300}, {.tokens = 800}, {.tokens = 100}},
     .batch = {0, 2},
     .bucket_tokens = 400},
    {.name = "TheLargestFittingSequenceFills",
     .queue = {{.tokens = 600}, {.tokens = 900}, {.tokens = 100}, {.tokens = 390}, {.tokens = 10}},
     .batch = {0, 3, 4},
     .bucket_tokens = 1000},
    {.name = "OfEqualSequencesTheEarlierFills",
     .queue = {{.tokens = 990}, {.tokens = 900}, {.tokens = 10}, {.tokens = 10}},
     .batch = {0, 2},
     .bucket_tokens = 1000},
    {.name = "WithoutOvertakingTheOrderIsStrict",
     .queue = {{.tokens = 300}, {.tokens = 800}, {.tokens = 100}},
     .batch = {0},
     .bucket_tokens = 400,
     .max_overtakes = 0},
    {.name = "ASequenceAtItsLimitIsABarrier",
     .queue = {{.tokens = 300}, {.tokens = 800, .overtaken = 5}, {.tokens = 100}},
     .batch = {0},
     .bucket_tokens = 400,
     .max_overtakes = 5},
    {.name = "OneSequenceOvertakesASequenceBelowItsLimit",
     .queue = {{.tokens = 600}, {.tokens = 900, .overtaken = 4}, {.tokens = 390}, {.tokens = 10}},
     .batch = {0, 2},
     .bucket_tokens = 1000,
     .max_overtakes = 5},
    {.name = "TheNumberOfSequencesLimitsABatch",
     .queue = {{.tokens = 1},
               {.tokens = 1},
               {.tokens = 1},
               {.tokens = 1},
               {.tokens = 1},
               {.tokens = 1},
               {.tokens = 1},
               {.tokens = 1},
               {.tokens = 1}},
     .batch = {0, 1, 2, 3, 4, 5, 6, 7},
     .bucket_tokens = 100},
    // A full batch takes 1010 us.
    {.name = "AnUrgentSequenceRunsFirst",
     .queue = {{.tokens = 900}, {.tokens = 950}, {.tokens = 90, .deadline_us = 1500}},
     .batch = {0, 2},
     .bucket_tokens = 1000},
    {.name = "AnUrgentSequenceTakesTheHeadsPlace",
     .queue = {{.tokens = 950}, {.tokens = 900, .deadline_us = 1500}, {.tokens = 90}},
     .batch = {1, 2},
     .bucket_tokens = 1000},
    {.name = "TheEarliestDeadlineRunsFirst",
     .queue = {{.tokens = 900, .deadline_us = 1900},
               {.tokens = 900, .deadline_us = 1500},
               {.tokens = 900, .deadline_us = 1800}},
     .batch = {1},
     .bucket_tokens = 1000},
    {.name = "ADistantDeadlineChangesNothing",
     .queue = {{.tokens = 950}, {.tokens = 900, .deadline_us = 50'000}},
     .batch = {0},
     .bucket_tokens = 1000},
    {.name = "AnUrgentSequenceDoesNotOvertakeABarrier",
     .queue = {{.tokens = 950, .overtaken = 5}, {.tokens = 900, .deadline_us = 1500}},
     .batch = {0},
     .bucket_tokens = 1000,
     .max_overtakes = 5},
    {.name = "ExcludesASequenceThatWouldBeLate",
     .queue = {{.tokens = 900, .deadline_us = 200}, {.tokens = 950}},
     .batch = {1},
     .bucket_tokens = 1000},
    {.name = "SequencesThatAreAllLateAreServed",
     .queue = {{.tokens = 900, .deadline_us = 200}, {.tokens = 90, .deadline_us = 50}},
     .batch = {0, 1},
     .bucket_tokens = 1000,
     .trigger = Trigger::kIdle},
    {.name = "ASmallerBatchServesAnUrgentSequenceInTime",
     .queue = {{.tokens = 300, .deadline_us = 600}, {.tokens = 900}},
     .batch = {0},
     .bucket_tokens = 400},
    {.name = "AnUrgentSequenceIsNotServedIfTooExpensive",
     .queue = {{.tokens = 20, .deadline_us = 120}, {.tokens = 980}},
     .batch = {1},
     .bucket_tokens = 1000},
};
SLUICE_TABLE(PackedFormerTable, kPackedRows);

TEST(PackedFormer, DecisionsOnRandomQueuesKeepTheRules) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<Waiting> waiting(1 + random() % 60);
    for (Waiting& w : waiting) {
      w.tokens = 1 + static_cast<int32_t>(random() % (random() % 2 == 0 ? 1000 : 100));
      w.overtaken = static_cast<int32_t>(random() % 6);
      if (random() % 8 == 0) w.deadline_us = 1 + static_cast<int64_t>(random() % 4000);
    }
    const FixedQueue fixed = QueueOf(waiting);
    PackedFormer former({.max_overtakes = 5});
    std::vector<WaitingSequence*> batch, all;
    const BatchDecision decision = former.Form(
        fixed.queue(), {.ladder = &TestLadder(), .costs = &TestCosts()}, AtMicroseconds(0), &batch);
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
    const MonoTime end = AtMicroseconds(0) + std::chrono::microseconds(decision.bucket.tokens + 11);
    auto taken = batch.begin();
    for (const WaitingSequence* sequence : all) {  // in order, each at most once
      if (taken != batch.end() && *taken == sequence) {
        ++taken;
      } else if (sequence->deadline > AtMicroseconds(1011)) {  // not left to expire
        const auto passing = static_cast<int32_t>(batch.end() - taken);
        EXPECT_LE(sequence->overtaken + passing, std::max(5, sequence->overtaken));
      }
    }
    EXPECT_EQ(taken, batch.end());
    const bool in_time = std::any_of(batch.begin(), batch.end(), [&](const auto* sequence) {
      return sequence->deadline >= end;
    });
    const bool somebody_may_be = std::any_of(all.begin(), all.end(), [&](const auto* sequence) {
      return sequence->deadline > AtMicroseconds(1011);
    });
    EXPECT_TRUE(in_time || !somebody_may_be);
  }
}

// Steps cost 50 units plus one per token of the batch, so the rate of n tokens is n / (n + 50).
TEST(PackedFormer, TakesFewTokensIfEmptyRowsCostNothing) {
  std::vector<Bucket> buckets;
  for (int32_t tokens = 50; tokens <= 3200; tokens *= 2) {
    buckets.push_back({.tokens = tokens, .sequences = 4000});
  }
  const Ladder ladder(buckets);
  const auto batch_tokens = [&](ComputedRows rows, int waiting, double unit = 1e-6) {
    CostModel costs(rows);
    for (int i = 0; i < 300; ++i) {
      const int32_t tokens = 10 + i * 10;
      costs.Observe({.bucket = *ladder.Choose({.tokens = tokens, .sequences = 1, .longest = 1}),
                     .computed_tokens = tokens},
                    unit * (50 + tokens));
    }
    const FixedQueue fixed = QueueOf(std::vector<Waiting>(waiting, {.tokens = 10}));
    PackedFormer former({});
    std::vector<WaitingSequence*> batch;
    const BatchDecision decision =
        former.Form(fixed.queue(), {.ladder = &ladder, .costs = &costs}, AtMicroseconds(0), &batch);
    EXPECT_TRUE(decision.launch);
    return decision.size.tokens;
  };
  EXPECT_EQ(batch_tokens(ComputedRows::OfBucket(), 1000), 3200);
  // 1600 / 1650 is 98.5 % of 3200 / 3250, 800 / 850 is 95.6 % and 400 / 450 is 90.3 %.
  EXPECT_EQ(batch_tokens(ComputedRows::OfBatch(), 1000), 800);
  EXPECT_EQ(batch_tokens(ComputedRows::OfBatch(), 100), 800);  // 1000 tokens: 98.8 % of the best
  EXPECT_EQ(batch_tokens(ComputedRows::OfBatch(), 30), 300);
  EXPECT_EQ(batch_tokens(ComputedRows::OfBatch(), 1000, 1e-7), 3200);  // 0.3 ms: short enough
}

struct PatienceRow {
  const char* name;
  int32_t tokens;
  double sequences_per_second;
  int waiting;
  bool waits;
};
class PatienceTable : public TableTest<PatienceRow> {};

TEST_P(PatienceTable, WaitsIfANewArrivalGainsMoreThanTheOthersLose) {
  const Ladder ladder({{.tokens = 20, .sequences = 64},
                       {.tokens = 100, .sequences = 64},
                       {.tokens = 1000, .sequences = 64}});
  CostModel costs;  // 60 us plus 0.2 us per computed token
  for (int i = 0; i < 300; ++i) {
    for (int32_t tokens : {10, 100, 1000}) {
      costs.Observe({.bucket = ladder.largest(), .computed_tokens = tokens},
                    60e-6 + 0.2e-6 * tokens);
    }
  }
  const FixedQueue fixed = QueueOf(
      std::vector<Waiting>(static_cast<size_t>(row().waiting), Waiting{.tokens = row().tokens}));
  std::vector<WaitingSequence*> batch;
  const FormerInputs inputs{
      .ladder = &ladder,
      .costs = &costs,
      .arrivals = {.sequences_per_second = row().sequences_per_second,
                   .tokens_per_second = row().sequences_per_second * row().tokens}};
  PackedFormer former({.max_queue_delay_us = 500});
  const BatchDecision early = former.Form(fixed.queue(), inputs, AtMicroseconds(100), &batch);
  EXPECT_EQ(early.launch, !row().waits);
  if (row().waits) {
    EXPECT_EQ(early.wait_until, AtMicroseconds(500));
    // The step takes at least 60 us, and the same time is reserved before a deadline.
    const FixedQueue pressed = QueueOf(std::vector<Waiting>(
        static_cast<size_t>(row().waiting), Waiting{.tokens = row().tokens, .deadline_us = 450}));
    const BatchDecision wait = former.Form(pressed.queue(), inputs, AtMicroseconds(100), &batch);
    EXPECT_FALSE(wait.launch);
    EXPECT_GT(wait.wait_until, AtMicroseconds(100));
    EXPECT_LT(wait.wait_until, AtMicroseconds(450 - 2 * 60));
  }
  const BatchDecision due = former.Form(fixed.queue(), inputs, AtMicroseconds(500), &batch);
  EXPECT_TRUE(due.launch);
  EXPECT_EQ(due.trigger, Trigger::kDelay);
  EXPECT_TRUE(PackedFormer({}).Form(fixed.queue(), inputs, AtMicroseconds(100), &batch).launch);
  FormerInputs draining = inputs;
  draining.draining = true;
  const BatchDecision last = former.Form(fixed.queue(), draining, AtMicroseconds(100), &batch);
  EXPECT_TRUE(last.launch);
  EXPECT_EQ(last.trigger, Trigger::kDrain);
}

const PatienceRow kPatienceRows[] = {
    {.name = "OneSmallRequestAtAHighRateWaits",
     .tokens = 10,
     .sequences_per_second = 1e6,
     .waiting = 1,
     .waits = true},
    {.name = "ManySmallRequestsDoNotWait",
     .tokens = 10,
     .sequences_per_second = 1e6,
     .waiting = 50,
     .waits = false},
    {.name = "ASmallRequestAtALowRateDoesNotWait",
     .tokens = 10,
     .sequences_per_second = 1e3,
     .waiting = 1,
     .waits = false},
    {.name = "ALargeRequestDoesNotWait",
     .tokens = 450,
     .sequences_per_second = 1e6,
     .waiting = 1,
     .waits = false},
};
SLUICE_TABLE(PatienceTable, kPatienceRows);

}  // namespace
}  // namespace sluice
