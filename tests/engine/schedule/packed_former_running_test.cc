// Tests PackedFormer with running sequences, which hold KV pages from one step to the next.
#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/schedule/packed_former.h"
#include "engine/schedule/scheduler.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

const Ladder& TestLadder() {
  static const Ladder ladder({{.tokens = 16, .sequences = 8},
                              {.tokens = 100, .sequences = 8},
                              {.tokens = 400, .sequences = 8}});
  return ladder;
}

// Steps cost 10 us plus 1 us per token of the bucket.
CostModel TestCosts() {
  CostState state;
  state.law[0] = 10e-6;
  state.law[1] = 1e-6;
  CostModel costs;
  costs.Restore(state);
  return costs;
}

constexpr WaitingSequence kDecode{.tokens = 1, .pages = 0, .running = true, .generates = true};

WaitingSequence Decode(int32_t pages = 0) {
  WaitingSequence sequence = kDecode;
  sequence.pages = pages;
  return sequence;
}
WaitingSequence Prompt(int32_t tokens, int32_t pages = 0) {
  return {.tokens = tokens, .pages = pages, .generates = true};
}
WaitingSequence Chunk(int32_t tokens, int32_t pages = 0) {
  return {.tokens = tokens, .later_tokens = 50, .pages = pages, .running = true, .generates = true};
}
WaitingSequence Scoring(int32_t tokens, int32_t pages = 0) {
  return {.tokens = tokens, .pages = pages};
}
WaitingSequence Passed(WaitingSequence sequence, int32_t overtaken) {
  sequence.overtaken = overtaken;
  return sequence;
}
WaitingSequence Due(WaitingSequence sequence, int64_t us) {
  sequence.deadline = MonoTime(std::chrono::microseconds(us));
  return sequence;
}

// Returns the sequence with a deadline that it will miss.
WaitingSequence Late(WaitingSequence sequence) {
  sequence.deadline = MonoTime() + nanoseconds(1);
  return sequence;
}

struct PackedFormerRunningRow {
  const char* name;
  std::vector<WaitingSequence> queue;
  std::vector<uint64_t> batch;  // expected tickets (places in the queue)
  int32_t available_pages = std::numeric_limits<int32_t>::max();
  BatchOptions options{.max_overtakes = 5, .prefill_tokens = 64};
  Trigger trigger = Trigger::kFull;
};
class PackedFormerRunningTable : public TableTest<PackedFormerRunningRow> {};

TEST_P(PackedFormerRunningTable, FormsItsBatch) {
  const CostModel costs = TestCosts();
  const FixedQueue fixed(row().queue);
  std::vector<WaitingSequence*> batch;
  const BatchDecision decision =
      PackedFormer(row().options)
          .Form(
              fixed.queue(),
              {.ladder = &TestLadder(), .costs = &costs, .available_pages = row().available_pages},
              MonoTime(), &batch);
  ASSERT_TRUE(decision.launch);
  std::vector<uint64_t> tickets;
  for (const WaitingSequence* sequence : batch) tickets.push_back(sequence->ticket);
  EXPECT_EQ(tickets, row().batch);
  EXPECT_EQ(NameOf(decision.trigger), NameOf(row().trigger));
}

const PackedFormerRunningRow kPackedRunningRows[] = {
    {.name = "DecodesRunWithoutAPrompt",
     .queue = {Decode(), Decode()},
     .batch = {0, 1},
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "ADecodeDoesNotWaitForOtherSequences",
     .queue = {Decode()},
     .batch = {0},
     .options = {.max_queue_delay_us = 1000, .max_overtakes = 5, .prefill_tokens = 64},
     .trigger = Trigger::kIdle},
    {.name = "APromptInProgressDoesNotWaitForOtherSequences",
     .queue = {Chunk(9)},
     .batch = {0},
     .options = {.max_queue_delay_us = 1000, .max_overtakes = 5, .prefill_tokens = 64},
     .trigger = Trigger::kIdle},
    {.name = "APromptJoinsADecode",
     .queue = {Decode(), Prompt(60)},
     .batch = {0, 1},
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "APromptThatWillBeLateAlsoJoinsADecode",
     .queue = {Decode(), Late(Prompt(60))},
     .batch = {0, 1},
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "DecodesAfterAFullBatchJoinIt",
     .queue = {Prompt(60), Prompt(60), Decode()},
     .batch = {0, 2}},
    {.name = "PromptTokensStayWithinTheBudget",
     .queue = {Decode(), Prompt(40), Prompt(30)},
     .batch = {0, 1}},
    {.name = "ASmallerPromptFillsTheBudget",
     .queue = {Decode(), Prompt(40), Prompt(30), Prompt(24)},
     .batch = {0, 1, 3}},
    {.name = "WithoutDecodesThereIsNoBudget",
     .queue = {Prompt(190), Prompt(190)},
     .batch = {0, 1},
     .options = {.prefill_tokens = 64},
     .trigger = Trigger::kIdle},
    {.name = "WithoutPrefillTokensThereIsNoBudget",
     .queue = {Decode(), Prompt(190), Prompt(190)},
     .batch = {0, 1, 2},
     .options = {.prefill_tokens = 0},
     .trigger = Trigger::kIdle},
    {.name = "AChunkKeepsItsPlaceInTheQueue",
     .queue = {Decode(), Chunk(64), Prompt(10)},
     .batch = {0, 1}},
    {.name = "AChunkDoesNotRunBeforeAnEarlierPrompt",
     .queue = {Decode(), Prompt(10), Chunk(64)},
     .batch = {0, 1}},
    {.name = "ScoringCountsAsAPrompt",
     .queue = {Decode(), Scoring(40), Scoring(40)},
     .batch = {0, 1}},
    {.name = "ANewSequenceLeavesAPageForEachThatRuns",
     .queue = {Decode(1), Decode(0), Prompt(10, 4)},
     .batch = {0, 1, 2},
     .available_pages = 1 + 4 + 3,
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "ANewSequenceWaitsIfAPageWouldBeMissing",
     .queue = {Decode(1), Decode(0), Prompt(10, 4)},
     .batch = {0, 1},
     .available_pages = 1 + 4 + 2},
    {.name = "ASequenceThatEndsWithItsStepNeedsNoPageInReserve",
     .queue = {Decode(1), Decode(0), Scoring(10, 4)},
     .batch = {0, 1, 2},
     .available_pages = 1 + 4 + 2,
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "PagesOfAChunkAreKeptForIt",
     .queue = {Decode(), Prompt(30, 3), Chunk(60, 5)},
     .batch = {0, 2},
     .available_pages = 9},
    {.name = "NewSequencesShareTheRemainingPages",
     .queue = {Decode(), Prompt(9, 3), Prompt(9, 3)},
     .batch = {0, 1},
     .available_pages = 8},
    {.name = "SmallerSequencesOvertakeASequenceWithoutPages",
     .queue = {Decode(), Prompt(60, 50), Prompt(9, 3)},
     .batch = {0, 2},
     .available_pages = 8},
    {.name = "ASequenceAtItsOvertakeLimitIsABarrier",
     .queue = {Decode(), Passed(Prompt(60, 50), 5), Prompt(9, 3)},
     .batch = {0},
     .available_pages = 8},
    {.name = "OneSequenceOvertakesASequenceJustBelowItsLimit",
     .queue = {Decode(), Passed(Prompt(60, 50), 4), Prompt(9, 1), Prompt(9, 1)},
     .batch = {0, 2},
     .available_pages = 8},
    {.name = "AChunkOvertakesABarrier",
     .queue = {Decode(), Passed(Prompt(60, 50), 9), Chunk(20, 3)},
     .batch = {0, 2},
     .available_pages = 8},
    {.name = "AChunkOvertakesABarrierWithoutDecodes",
     .queue = {Passed(Prompt(60, 50), 9), Chunk(20, 3)},
     .batch = {1},
     .available_pages = 8},
    {.name = "AChunkAtItsOvertakeLimitIsABarrier",
     .queue = {Decode(), Prompt(60), Passed(Chunk(64), 5), Prompt(4)},
     .batch = {0, 1}},
    {.name = "ASingleSequenceMayTakeAllPages",
     .queue = {Prompt(60, 8)},
     .batch = {0},
     .available_pages = 8,
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "ASecondSequenceGetsNoPagesIfTheFirstTakesAll",
     .queue = {Prompt(60, 8), Prompt(60, 1)},
     .batch = {0},
     .available_pages = 8},
    {.name = "RunningSequencesFitInAStep",
     .queue = {Decode(), Decode(), Decode(), Decode(), Decode(), Decode(), Prompt(2), Prompt(2),
               Prompt(2)},
     .batch = {0, 1, 2, 3, 4, 5, 6, 7}},
    {.name = "ASequenceThatEndsWithItsStepOvertakesOneThatWouldKeepRunning",
     .queue = {Decode(), Decode(), Decode(), Decode(), Decode(), Decode(), Chunk(40), Chunk(40),
               Prompt(2), Scoring(2)},
     .batch = {0, 1, 2, 3, 4, 5, 6, 9}},
    {.name = "NoSequenceJoinsWithoutContinuousBatching",
     .queue = {Decode(), Prompt(4), Scoring(4)},
     .batch = {0},
     .options = {.max_overtakes = 5, .prefill_tokens = 64, .continuous = false}},
    {.name = "WithoutContinuousBatchingSequencesBeginTogether",
     .queue = {Prompt(4), Prompt(4)},
     .batch = {0, 1},
     .options = {.max_overtakes = 5, .prefill_tokens = 64, .continuous = false},
     .trigger = Trigger::kIdle},
    {.name = "AnUrgentPromptTakesTheBudgetFirst",
     .queue = {Decode(), Prompt(60), Due(Prompt(60), 300)},
     .batch = {0, 2}},
    {.name = "ADecodeWithADeadlineExcludesNoPrompt",
     .queue = {Due(Decode(), 300), Prompt(60)},
     .batch = {0, 1},
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "ExcludesAPromptThatWouldBeLate",
     .queue = {Decode(), Due(Prompt(60), 20), Prompt(60)},
     .batch = {0, 2}},
    {.name = "DecodesJoinEvenIfTheyWillBeLate",
     .queue = {Due(Decode(), 1), Prompt(60)},
     .batch = {0, 1},
     .options = {},
     .trigger = Trigger::kIdle},
    {.name = "ACheapStepOfDecodesDoesNotWin",
     .queue = {Decode(), Decode(), Decode(), Decode(), Decode(), Decode(), Prompt(12)},
     .batch = {0, 1, 2, 3, 4, 5, 6},
     .options = {},
     .trigger = Trigger::kIdle},
};
SLUICE_TABLE(PackedFormerRunningTable, kPackedRunningRows);

WaitingSequence RandomSequence(std::mt19937_64* random, int32_t largest_prompt) {
  const auto below = [&](int32_t most) { return static_cast<int32_t>((*random)() % most); };
  WaitingSequence sequence{.tokens = 1 + below(largest_prompt), .pages = below(8)};
  sequence.generates = below(2) == 0;
  if (below(3) == 0) sequence.later_tokens = 1 + below(100);
  if (below(4) == 0) sequence.priority = 1 + below(kPriorityLevels);
  sequence.overtaken = below(8);
  if (below(8) == 0) sequence.deadline = MonoTime(std::chrono::microseconds(1 + below(1000)));
  return sequence;
}

// Returns a random queue; at most six of its sequences run.
std::vector<WaitingSequence> RandomQueue(std::mt19937_64* random) {
  std::vector<WaitingSequence> queue((*random)() % 60);
  for (WaitingSequence& sequence : queue) sequence = RandomSequence(random, 64);
  for (uint64_t i = (*random)() % 7; i > 0; --i) {
    WaitingSequence running = RandomSequence(random, 64);
    running.running = true;
    if ((*random)() % 4 != 0) {
      running.tokens = 1;
      running.later_tokens = 0;
    }
    queue.insert(queue.begin() + static_cast<std::ptrdiff_t>((*random)() % (queue.size() + 1)),
                 running);
  }
  if (queue.empty()) queue.push_back(Prompt(1, 1));
  return queue;
}

void ExpectBounds(const SequenceQueue& queue, const std::vector<WaitingSequence*>& batch,
                  const BatchDecision& decision, const BatchOptions& options, int32_t available) {
  BatchSize size{};
  int64_t pages = 0;
  size_t running = queue.running(), decodes = 0, joining = 0;
  for (const WaitingSequence* sequence : batch) {
    size.tokens += sequence->tokens;
    ++size.sequences;
    size.longest = std::max(size.longest, sequence->tokens);
    pages += sequence->pages;
    if (IsDecode(*sequence)) ++decodes;
    if (sequence->running) continue;
    ++joining;
    if (sequence->generates || sequence->later_tokens > 0) ++running;
  }
  EXPECT_EQ(size, decision.size);
  EXPECT_TRUE(decision.bucket.Fits(size));
  EXPECT_LE(pages, available);
  EXPECT_LE(running, 8u);
  if (decodes > 0 && options.prefill_tokens > 0) {
    EXPECT_LE(size.tokens - static_cast<int32_t>(decodes), options.prefill_tokens);
  }
  if (joining > 0 && queue.running() > 0) {
    EXPECT_TRUE(options.continuous);
    EXPECT_LE(pages + static_cast<int64_t>(running), available);
  }
}

// Expects that only running sequences overtake a sequence at its limit. A sequence that is about to
// expire may be overtaken.
void ExpectBarriers(const std::vector<WaitingSequence*>& all,
                    const std::vector<WaitingSequence*>& batch, int32_t max_overtakes) {
  const MonoTime may_expire(std::chrono::microseconds(411));
  bool barred = false;
  for (const WaitingSequence* sequence : all) {
    const bool taken = std::find(batch.begin(), batch.end(), sequence) != batch.end();
    EXPECT_FALSE(taken && barred && !sequence->running) << sequence->ticket;
    barred |= !taken && sequence->deadline > may_expire && sequence->overtaken >= max_overtakes;
  }
}

TEST(PackedFormerRunning, DecisionsOnRandomQueuesKeepTheRules) {
  const CostModel costs = TestCosts();
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const FixedQueue fixed(RandomQueue(&random));
    const SequenceQueue& queue = fixed.queue();
    const BatchOptions options{.max_overtakes = static_cast<int32_t>(random() % 8),
                               .prefill_tokens = random() % 4 == 0 ? 0 : 64,
                               .continuous = random() % 4 != 0};
    const auto available =
        static_cast<int32_t>(std::max<int64_t>(queue.running_pages(), 7) + random() % 20);
    std::vector<WaitingSequence*> batch, running, all;
    PackedFormer former(options);
    const BatchDecision decision =
        former.Form(queue, {.ladder = &TestLadder(), .costs = &costs, .available_pages = available},
                    MonoTime(), &batch);
    ASSERT_TRUE(decision.launch);
    ASSERT_FALSE(batch.empty());
    ExpectBounds(queue, batch, decision, options, available);
    queue.Front(queue.size(), &all);
    ExpectBarriers(all, batch, options.max_overtakes);
    EXPECT_TRUE(std::is_sorted(batch.begin(), batch.end(),
                               [&](const auto* a, const auto* b) { return queue.Before(*a, *b); }));
    queue.Running(&running);
    for (WaitingSequence* sequence : running) {
      if (!IsDecode(*sequence)) continue;
      EXPECT_NE(std::find(batch.begin(), batch.end(), sequence), batch.end());
    }
    if (HasFailure()) return;
  }
}

// A stream of small sequences. Each runs for at most kLife steps and holds one page; ten always
// wait. Counts the decisions until a sequence that needs all pages runs.
class Stream {
 public:
  static constexpr int32_t kLife = 20;
  static constexpr int32_t kPages = 8;

  Stream(int32_t max_overtakes, uint64_t seed)
      : random_(seed),
        scheduler_({.max_overtakes = max_overtakes, .prefill_tokens = 64}, std::chrono::hours(1),
                   std::make_shared<const Ladder>(TestLadder()), TestCosts(), nullptr) {}

  int DecisionsUntilTheLargeRuns(int most) {
    for (int i = 0; i < 30; ++i) Step();
    WaitingSequence large{.ticket = next_ticket_++, .tokens = 60, .pages = kPages};
    large.queued = MonoTime(nanoseconds(large.ticket));
    scheduler_.Arrive(&large);
    for (int decisions = 1; decisions <= most; ++decisions) {
      if (Step(&large)) return decisions;
    }
    scheduler_.Remove(&large);
    return most + 1;
  }

 private:
  struct Small {
    WaitingSequence sequence;
    int32_t steps_left;
  };

  bool Step(const WaitingSequence* large = nullptr) {
    while (scheduler_.queue().size() < scheduler_.queue().running() + 10) Arrive();
    scheduler_.Decide({.available_pages = kPages - held_}, &batch_);
    bool found = false;
    for (WaitingSequence* sequence : batch_) {
      if (sequence == large) {
        found = true;
      } else {
        End(sequence);
      }
    }
    return found;
  }

  void Arrive() {
    Small& small = *all_.emplace_back(std::make_unique<Small>());
    small.steps_left = 1 + static_cast<int32_t>(random_() % kLife);
    small.sequence = {.ticket = next_ticket_++,
                      .tokens = 1 + static_cast<int32_t>(random_() % 16),
                      .pages = 1,
                      .generates = true};
    small.sequence.queued = MonoTime(nanoseconds(small.sequence.ticket));
    by_ticket_[small.sequence.ticket] = &small;
    scheduler_.Arrive(&small.sequence);
  }

  void End(WaitingSequence* sequence) {
    Small& small = *by_ticket_[sequence->ticket];
    held_ += sequence->pages;
    if (--small.steps_left == 0) {
      --held_;
      return;
    }
    sequence->first_position += sequence->tokens;
    sequence->tokens = 1;
    sequence->pages = 0;
    sequence->running = true;
    scheduler_.Return(sequence);
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Small>> all_;
  std::map<uint64_t, Small*> by_ticket_;
  uint64_t next_ticket_ = 1;
  int32_t held_ = 0;
  Scheduler scheduler_;
  std::vector<WaitingSequence*> batch_;
};

// Each sequence ahead of it, and each that may overtake it, runs for at most kLife steps. Then it
// gets all pages.
TEST(PackedFormerRunning, ASequenceThatNeedsAllPagesEventuallyRuns) {
  constexpr int32_t kMaxOvertakes = 16;
  constexpr int kBound = 6 * Stream::kLife + kMaxOvertakes;
  int starved = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_LE(Stream(kMaxOvertakes, seed).DecisionsUntilTheLargeRuns(kBound), kBound);
    if (Stream(1'000'000, seed).DecisionsUntilTheLargeRuns(2 * kBound) > 2 * kBound) ++starved;
  }
  EXPECT_GT(starved, 40);  // without the limit it does not run
}

}  // namespace
}  // namespace sluice
