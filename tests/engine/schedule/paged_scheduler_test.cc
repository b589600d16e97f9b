#include "engine/schedule/paged_scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

Tokens Counting(int32_t first, size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A sequence with the storage of its history.
struct Sequence : PagedSequence {
  Tokens all;
};

class PagedSchedulerTest : public ::testing::Test {
 protected:
  void Make(const PagedScheduler::Options& options, const BatchOptions& batch,
            int32_t sequences = 8, const CostModel& costs = {}) {
    const auto ladder = std::make_shared<const Ladder>(
        std::vector<Bucket>{{.tokens = 4, .sequences = std::min(sequences, 4)},
                            {.tokens = 64, .sequences = sequences}});
    scheduler_ = std::make_unique<PagedScheduler>(batch, options, std::chrono::minutes(1), ladder,
                                                  costs, nullptr);
  }

  // Makes a sequence that arrives after all earlier sequences of its priority.
  Sequence* New(Tokens tokens) {
    Sequence* const sequence = &sequences_.emplace_back();
    sequence->all = std::move(tokens);
    sequence->all.reserve(64);
    sequence->history = sequence->all;
    sequence->ticket = sequences_.size();
    sequence->generates = generates_;
    return sequence;
  }
  Sequence* Arrive(Tokens tokens) {
    Sequence* const sequence = New(std::move(tokens));
    scheduler_->Arrive(sequence);
    return sequence;
  }

  std::vector<PagedSequence*> Decide(bool ahead = false) {
    std::vector<WaitingSequence*> waiting;
    decision_ = scheduler_->Decide(MonoTime(), /*draining=*/true, &waiting, ahead);
    EXPECT_EQ(decision_.launch, !waiting.empty());
    std::vector<PagedSequence*> batch;
    for (WaitingSequence* sequence : waiting) {
      batch.push_back(static_cast<Sequence*>(sequence));
    }
    return batch;
  }

  // Returns the sequence after its step, with `token` if one was drawn.
  void Return(Sequence* sequence) {
    scheduler_->Computed(sequence);
    scheduler_->Return(sequence);
  }
  void Return(Sequence* sequence, int32_t token) {
    scheduler_->Computed(sequence);
    sequence->all.push_back(token);
    sequence->history = sequence->all;
    scheduler_->Return(sequence);
  }
  // Runs the sequence by itself to the end of its history and ends it.
  void RunToEnd(Sequence* sequence) {
    scheduler_->Arrive(sequence);
    while (true) {
      ASSERT_THAT(Decide(), ElementsAre(sequence));
      if (sequence->later_tokens == 0) break;
      Return(sequence);
    }
    scheduler_->Computed(sequence);
    scheduler_->End(sequence);
  }

  bool generates_ = false;  // whether sequences made from now on generate
  std::unique_ptr<PagedScheduler> scheduler_;
  std::deque<Sequence> sequences_;
  BatchDecision decision_;
};

// Returns first_position, tokens, later_tokens, sampled_rows, pages and running.
std::vector<int32_t> StepOf(const PagedSequence& sequence) {
  return {sequence.first_position, sequence.tokens, sequence.later_tokens,
          sequence.sampled_rows,   sequence.pages,  sequence.running ? 1 : 0};
}

TEST_F(PagedSchedulerTest, ComputesAPromptInChunksAndThenTokenByToken) {
  generates_ = true;
  Make({.pages = 8, .page_tokens = 4}, {.prefill_tokens = 5});
  Sequence* const sequence = Arrive(Counting(0, 12));
  EXPECT_THAT(StepOf(*sequence), ElementsAre(0, 5, 7, 0, 3, 0));
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  EXPECT_EQ(sequence->kv.ids.size(), 2u);
  Return(sequence);
  EXPECT_THAT(StepOf(*sequence), ElementsAre(5, 5, 2, 0, 1, 1));
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  Return(sequence);
  EXPECT_THAT(StepOf(*sequence), ElementsAre(10, 2, 0, 1, 0, 1));
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  Return(sequence, 12);
  EXPECT_THAT(StepOf(*sequence), ElementsAre(12, 1, 0, 1, 1, 1));
  EXPECT_EQ(scheduler_->kv().available(), 5);
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  scheduler_->End(sequence);
  EXPECT_EQ(scheduler_->kv().available(), 8);
}

TEST_F(PagedSchedulerTest, CutsPromptsOnlyWhileASequenceGenerates) {
  Make({.pages = 16, .page_tokens = 4}, {.prefill_tokens = 5});
  Sequence* const scored = Arrive(Counting(0, 12));
  EXPECT_THAT(StepOf(*scored), ElementsAre(0, 12, 0, 1, 3, 0));
  generates_ = true;
  Sequence* const other = Arrive(Counting(100, 3));
  EXPECT_THAT(Decide(), ElementsAre(scored, other));
  EXPECT_THAT(StepOf(*scored), ElementsAre(0, 5, 7, 0, 3, 0));
  Return(scored);
  EXPECT_EQ(scored->tokens, 5);
  scheduler_->End(other);
  EXPECT_THAT(Decide(), ElementsAre(scored));
  EXPECT_THAT(StepOf(*scored), ElementsAre(5, 7, 0, 1, 1, 1));
}

// Without reuse no page is published, so there is no other reason to look at prompts again.
TEST_F(PagedSchedulerTest, CutsPromptsAgainWhenTheLastGeneratingSequenceEnds) {
  Make({.pages = 16, .page_tokens = 4, .prefix_reuse = false}, {.prefill_tokens = 5});
  Sequence* const scored = Arrive(Counting(0, 12));
  generates_ = true;
  Sequence* const other = Arrive(Counting(100, 3));
  EXPECT_THAT(Decide(), ElementsAre(scored, other));
  Return(scored);
  Return(other, 103);
  EXPECT_EQ(scored->tokens, 5);
  scheduler_->Remove(other);
  EXPECT_THAT(Decide(), ElementsAre(scored));
  EXPECT_THAT(StepOf(*scored), ElementsAre(5, 7, 0, 1, 1, 1));
}

// A prompt that returned to the queue while nothing generated is cut again.
TEST_F(PagedSchedulerTest, CutsPromptsThatReturnedBetweenTwoGeneratingSequences) {
  Make({.pages = 16, .page_tokens = 4}, {.prefill_tokens = 5});
  Sequence* const scored = Arrive(Counting(0, 20));
  generates_ = true;
  Sequence* const first = Arrive(Counting(100, 3));
  EXPECT_THAT(Decide(), ElementsAre(scored, first));
  scheduler_->End(first);
  Return(scored);
  EXPECT_EQ(scored->tokens, 15);
  Arrive(Counting(200, 3));
  Decide();
  EXPECT_EQ(scored->tokens, 5);
}

struct SampledRowsRow {
  const char* name;
  bool scored, sampled_end;
  std::vector<int32_t> sampled_rows;  // in each step of the prompt
};
class SampledRowsTable : public TableTest<SampledRowsRow, PagedSchedulerTest> {};

TEST_P(SampledRowsTable, AreCountedInEachStep) {
  generates_ = true;
  Make({.pages = 8, .page_tokens = 4}, {.prefill_tokens = 4});
  Sequence* const sequence = New(Counting(0, 10));
  sequence->reuse = false;
  sequence->scored = row().scored;
  sequence->sampled_end = row().sampled_end;
  scheduler_->Arrive(sequence);
  std::vector<int32_t> rows;
  for (int step = 0; step < 3; ++step) {
    if (step > 0) Return(sequence);
    rows.push_back(sequence->sampled_rows);
    ASSERT_THAT(Decide(), ElementsAre(sequence));
  }
  EXPECT_EQ(rows, row().sampled_rows);
  scheduler_->End(sequence);
}

const SampledRowsRow kSampledRowsRows[] = {
    {.name = "APromptIsSampledAtItsEnd",
     .scored = false,
     .sampled_end = true,
     .sampled_rows = {0, 0, 1}},
    {.name = "APromptWithoutOutputIsNotSampled",
     .scored = false,
     .sampled_end = false,
     .sampled_rows = {0, 0, 0}},
    {.name = "AScoredPromptIsSampledEverywhere",
     .scored = true,
     .sampled_end = true,
     .sampled_rows = {4, 4, 2}},
    {.name = "AScoredPromptThatEndsUnsampledHasOneRowLess",
     .scored = true,
     .sampled_end = false,
     .sampled_rows = {4, 4, 1}},
};
SLUICE_TABLE(SampledRowsTable, kSampledRowsRows);

TEST_F(PagedSchedulerTest, WithoutPagesEachStepComputesTheWholeHistory) {
  Make({.keeps_pages = false}, {.policy = PolicyKind::kFifoPacked, .prefill_tokens = 4});
  Sequence* const sequence = Arrive(Counting(0, 10));
  EXPECT_THAT(StepOf(*sequence), ElementsAre(0, 10, 0, 1, 0, 0));
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  Return(sequence, 10);
  EXPECT_THAT(StepOf(*sequence), ElementsAre(0, 11, 0, 1, 0, 0));
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  EXPECT_THAT(sequence->kv.ids, IsEmpty());
  scheduler_->Computed(sequence);
  scheduler_->End(sequence);
}

TEST_F(PagedSchedulerTest, BeginsAfterTheFoundPrefix) {
  Make({.pages = 8, .page_tokens = 4}, {.prefill_tokens = 0});
  RunToEnd(New(Counting(0, 12)));
  // Two of its three pages are reused, because one token must be left to compute. They are idle, so
  // holding them takes two more pages.
  Sequence* const sequence = Arrive(Counting(0, 12));
  EXPECT_THAT(StepOf(*sequence), ElementsAre(8, 4, 0, 1, 3, 0));
  Sequence* const unlike = New(Counting(0, 12));
  unlike->reuse = false;
  scheduler_->Arrive(unlike);
  EXPECT_THAT(StepOf(*unlike), ElementsAre(0, 12, 0, 1, 3, 0));
  Decide();
  EXPECT_EQ(sequence->reused_tokens, 8);
  EXPECT_EQ(scheduler_->counts().prefix_tokens, 24);
  EXPECT_EQ(scheduler_->counts().reused_tokens, 8);
  // Pages that are already held cost nothing.
  EXPECT_THAT(StepOf(*Arrive(Counting(0, 12))), ElementsAre(8, 4, 0, 1, 1, 0));
}

TEST_F(PagedSchedulerTest, BeginsAfterAPrefixPublishedWhileItWaited) {
  Make({.pages = 8, .page_tokens = 4}, {.prefill_tokens = 0}, /*sequences=*/1);
  Sequence* const first = Arrive(Counting(0, 12));
  Sequence* const second = Arrive(Counting(0, 12));
  EXPECT_THAT(Decide(), ElementsAre(first));
  EXPECT_EQ(second->first_position, 0);
  scheduler_->Computed(first);
  scheduler_->End(first);
  EXPECT_THAT(Decide(), ElementsAre(second));
  EXPECT_THAT(StepOf(*second), ElementsAre(8, 4, 0, 1, 3, 0));
  EXPECT_EQ(second->kv.ids.size(), 3u);
}

TEST_F(PagedSchedulerTest, TheLastSequenceYieldsItsPagesIfThereAreTooFew) {
  Make({.pages = 6, .page_tokens = 4}, {.prefill_tokens = 0});
  Sequence* const first = Arrive(Counting(0, 4));
  Sequence* const last = Arrive(Counting(100, 7));
  first->generates = last->generates = true;
  for (int32_t token = 0; token < 6; ++token) {
    ASSERT_THAT(Decide(), ElementsAre(first, last));
    Return(first, 50 + token);
    Return(last, 150 + token);
  }
  EXPECT_EQ(scheduler_->kv().available(), 0);
  EXPECT_THAT(Decide(), ElementsAre(first));
  EXPECT_EQ(last->preemptions, 1);
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  EXPECT_THAT(last->kv.ids, IsEmpty());
  // Its full pages are still found in the cache.
  EXPECT_THAT(StepOf(*last), ElementsAre(12, 1, 0, 1, 4, 0));
  scheduler_->Computed(first);
  scheduler_->End(first);
  EXPECT_THAT(Decide(), ElementsAre(last));
  EXPECT_EQ(last->kv.ids.size(), 4u);
  EXPECT_EQ(last->reused_tokens, 0);
  EXPECT_EQ(scheduler_->counts().prefix_tokens, 11);
  scheduler_->End(last);
  EXPECT_EQ(scheduler_->kv().available(), 6);
}

TEST_F(PagedSchedulerTest, DoesNotBeginAPromptWithoutEnoughPages) {
  generates_ = true;
  Make({.pages = 8, .page_tokens = 4}, {.prefill_tokens = 4});
  Sequence* const first = Arrive(Counting(0, 16));
  Sequence* const second = Arrive(Counting(100, 16));
  for (int chunk = 0; chunk < 4; ++chunk) {
    if (chunk > 0) Return(first);
    ASSERT_THAT(Decide(), ElementsAre(first));
  }
  scheduler_->End(first);
  EXPECT_THAT(Decide(), ElementsAre(second));
}

TEST_F(PagedSchedulerTest, ASequenceRemovedWhileItWaitsReleasesItsPages) {
  generates_ = true;
  Make({.pages = 4, .page_tokens = 4}, {.prefill_tokens = 4});
  Sequence* const sequence = Arrive(Counting(0, 10));
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  Return(sequence);
  EXPECT_EQ(scheduler_->kv().available(), 3);
  scheduler_->Remove(sequence);
  EXPECT_EQ(scheduler_->kv().available(), 4);
  EXPECT_EQ(scheduler_->kv().idle(), 1);
  EXPECT_TRUE(scheduler_->scheduler().queue().empty());
}

TEST_F(PagedSchedulerTest, MovesASequenceThroughStepsAheadAndRewinds) {
  using enum SequenceState;
  generates_ = true;
  Make({.pages = 8, .page_tokens = 4}, {.prefill_tokens = 0});
  Sequence* const sequence = New(Counting(0, 4));
  EXPECT_EQ(sequence->state(), kHeld);
  scheduler_->Arrive(sequence);
  EXPECT_EQ(sequence->state(), kQueued);
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  EXPECT_EQ(sequence->state(), kRunning);

  scheduler_->ReturnAhead(sequence, /*draws=*/true);
  EXPECT_EQ(sequence->state(), kQueuedAhead);
  scheduler_->Recall(sequence);
  EXPECT_EQ(sequence->state(), kRunning);
  EXPECT_EQ(sequence->first_position, 0);

  scheduler_->ReturnAhead(sequence, /*draws=*/true);
  EXPECT_THAT(Decide(/*ahead=*/true), ElementsAre(sequence));
  EXPECT_EQ(sequence->state(), kRunningAhead);
  scheduler_->Rewind(sequence);
  EXPECT_TRUE(sequence->is_void());
  scheduler_->LeaveRewound(sequence);
  EXPECT_EQ(sequence->state(), kRunning);
  EXPECT_EQ(sequence->first_position, 0);

  scheduler_->ReturnAhead(sequence, /*draws=*/true);
  EXPECT_THAT(Decide(/*ahead=*/true), ElementsAre(sequence));
  Return(sequence, 4);
  EXPECT_EQ(sequence->state(), kRunning);
  EXPECT_EQ(sequence->first_position, 4);
  scheduler_->ReturnAhead(sequence, /*draws=*/true);
  EXPECT_THAT(Decide(/*ahead=*/true), ElementsAre(sequence));
  scheduler_->End(sequence);
  EXPECT_EQ(sequence->state(), kEnding);
  EXPECT_FALSE(sequence->kv.ids.empty());  // the later step may still write to them
  scheduler_->End(sequence);
  EXPECT_EQ(sequence->state(), kDone);
  EXPECT_EQ(scheduler_->kv().available(), 8);
}

TEST_F(PagedSchedulerTest, RemovesAHeldSequence) {
  Make({.pages = 8, .page_tokens = 4}, {});
  Sequence* const sequence = New(Counting(0, 4));
  scheduler_->Remove(sequence);
  EXPECT_EQ(sequence->state(), SequenceState::kDone);
  EXPECT_TRUE(scheduler_->scheduler().queue().empty());
}

using PagedSchedulerDeathTest = PagedSchedulerTest;

TEST_F(PagedSchedulerDeathTest, RefusesAnOperationInTheWrongState) {
  Make({.pages = 8, .page_tokens = 4}, {});
  Sequence* const sequence = Arrive(Counting(0, 4));
  EXPECT_DEATH(scheduler_->Arrive(sequence), "broken invariant");
  EXPECT_DEATH(scheduler_->End(sequence), "broken invariant");
  EXPECT_DEATH(scheduler_->Computed(sequence), "broken invariant");
  EXPECT_DEATH(scheduler_->Recall(sequence), "broken invariant");
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  EXPECT_DEATH(scheduler_->Remove(sequence), "broken invariant");
  EXPECT_DEATH(scheduler_->Rewind(sequence), "broken invariant");
  EXPECT_DEATH(scheduler_->LeaveRewound(sequence), "broken invariant");
  scheduler_->End(sequence);
  EXPECT_DEATH(scheduler_->End(sequence), "broken invariant");
}

// Not all of the many waiting sequences are looked up again before a decision, so the estimate of
// the last one becomes outdated.
class OldEstimateTest : public PagedSchedulerTest {
 protected:
  static constexpr size_t kAhead = 1100;

  Sequence* ArriveWith(int priority, bool reuse, Tokens tokens) {
    Sequence* const sequence = New(std::move(tokens));
    sequence->priority = priority;
    sequence->reuse = reuse;
    scheduler_->Arrive(sequence);
    return sequence;
  }
  Sequence* ArriveLast() { return ArriveWith(3, true, Counting(0, 12)); }

  void ArriveAhead() {
    for (size_t i = 0; i < kAhead; ++i) ahead_.push_back(ArriveWith(1, false, {1}));
  }
  // Looks up the prefixes of the sequences ahead, runs two of them, and removes all others but
  // `left`.
  void DropAhead(size_t left) {
    EXPECT_THAT(Decide(), ElementsAre(ahead_[0], ahead_[1]));
    for (size_t i = 0; i < 2; ++i) scheduler_->End(ahead_[i]);
    for (size_t i = 2; i < kAhead - left; ++i) scheduler_->Remove(ahead_[i]);
  }
  // Returns a last sequence whose reusable pages have been evicted.
  Sequence* ArriveAndEvict() {
    Make({.pages = 4, .page_tokens = 4}, {.prefill_tokens = 0}, /*sequences=*/2);
    RunToEnd(New(Counting(0, 12)));
    Sequence* const last = ArriveLast();
    Sequence* const evicting = ArriveWith(1, false, Counting(200, 15));
    ArriveAhead();
    EXPECT_THAT(Decide(), ElementsAre(evicting));
    scheduler_->End(evicting);
    return last;
  }

  std::vector<Sequence*> ahead_;
};

TEST_F(OldEstimateTest, IsCorrectedBeforeItsSequenceRuns) {
  Sequence* const last = ArriveAndEvict();
  DropAhead(/*left=*/0);
  EXPECT_EQ(last->first_position, 8);
  EXPECT_THAT(Decide(), ElementsAre(last));
  EXPECT_THAT(StepOf(*last), ElementsAre(0, 12, 0, 1, 3, 0));
  EXPECT_EQ(decision_.size.tokens, 12);
  EXPECT_EQ(last->kv.ids.size(), 3u);
}

TEST_F(OldEstimateTest, DoesNotDelayOtherSequences) {
  Sequence* const last = ArriveAndEvict();
  DropAhead(/*left=*/1);
  EXPECT_EQ(last->first_position, 8);
  EXPECT_THAT(Decide(), ElementsAre(ahead_.back()));
  EXPECT_EQ(decision_.size, (BatchSize{.tokens = 1, .sequences = 1, .longest = 1}));
  EXPECT_EQ(decision_.bucket.tokens, 4);  // smaller than the bucket of both
  EXPECT_THAT(StepOf(*last), ElementsAre(0, 12, 0, 1, 3, 0));
  EXPECT_THAT(last->kv.ids, IsEmpty());
  EXPECT_EQ(scheduler_->scheduler().queue().size(), 1);
}

TEST_F(OldEstimateTest, KeepsTheOvertakenCount) {
  Sequence* const last = ArriveAndEvict();
  DropAhead(/*left=*/1);
  last->overtaken = 5;
  EXPECT_THAT(Decide(), ElementsAre(ahead_.back()));
  EXPECT_EQ(last->overtaken, 5);
}

TEST_F(OldEstimateTest, TakesOnlyTheDecidedPages) {
  Make({.pages = 8, .page_tokens = 4}, {.prefill_tokens = 0}, /*sequences=*/2);
  Sequence* const holding = Arrive(Counting(0, 12));
  EXPECT_THAT(Decide(), ElementsAre(holding));
  Return(holding, 12);
  Sequence* const last = ArriveLast();
  ArriveAhead();
  EXPECT_EQ(last->pages, 1);
  // From now on the prefix is idle, so holding it takes two pages more.
  scheduler_->Remove(holding);
  DropAhead(/*left=*/0);
  EXPECT_EQ(last->pages, 1);
  Sequence* const large = ArriveWith(1, false, Counting(200, 28));
  EXPECT_THAT(Decide(), ElementsAre(large));
  EXPECT_THAT(StepOf(*last), ElementsAre(8, 4, 0, 1, 3, 0));
  EXPECT_THAT(last->kv.ids, IsEmpty());
}

// Runs a prompt of six tokens and returns the sequence, which then waits with `drafts` drafted
// tokens.
class DraftsTest : public PagedSchedulerTest {
 protected:
  void MakeDrafting(int32_t pages, int32_t draft_sequences = 1) {
    generates_ = true;
    Make({.pages = pages, .page_tokens = 4, .draft_sequences = draft_sequences}, {},
         /*sequences=*/8, CostsOfEqualSteps());
  }
  Sequence* Begin(int32_t first_token, int32_t drafts) {
    Sequence* const sequence = Arrive(Counting(first_token, 6));
    EXPECT_FALSE(Decide().empty());
    sequence->drafts = drafts;
    sequence->acceptance = 1;
    Return(sequence, first_token + 6);
    return sequence;
  }
  // Ends the step of the sequence; `kept` are the accepted tokens and the last drawn one.
  void ReturnAfterDrafts(Sequence* sequence, const Tokens& kept) {
    sequence->all.insert(sequence->all.end(), kept.begin(), kept.end());
    sequence->history = sequence->all;
    sequence->rejected = sequence->drafted - static_cast<int32_t>(kept.size()) + 1;
    scheduler_->Computed(sequence);
    scheduler_->Return(sequence);
  }
};

TEST_F(DraftsTest, AStepComputesDraftsAfterTheLastToken) {
  MakeDrafting(8);
  Sequence* const sequence = Begin(0, 5);
  EXPECT_THAT(StepOf(*sequence), ElementsAre(6, 1, 0, 1, 0, 1));
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  EXPECT_THAT(StepOf(*sequence), ElementsAre(6, 6, 0, 6, 0, 1));
  EXPECT_EQ(sequence->drafted, 5);
  EXPECT_EQ(sequence->kv.ids.size(), 3u);
  EXPECT_EQ(decision_.size, (BatchSize{.tokens = 6, .sequences = 1, .longest = 6}));
  EXPECT_EQ(decision_.bucket.tokens, 64);
}

// Positions 6 to 11 were computed, of which 6, 7 and 8 are accepted.
TEST_F(DraftsTest, OnlyAcceptedPositionsArePublishedAndKept) {
  MakeDrafting(8);
  Sequence* const sequence = Begin(0, 7);
  Decide();
  EXPECT_EQ(sequence->kv.ids.size(), 4u);
  ReturnAfterDrafts(sequence, {20, 21, 22});
  EXPECT_THAT(StepOf(*sequence), ElementsAre(9, 1, 0, 1, 0, 1));
  EXPECT_EQ(sequence->kv.ids.size(), 3u);
  EXPECT_EQ(sequence->kv.published, 2);
  EXPECT_EQ(scheduler_->kv().available(), 5);
  const auto& counts = scheduler_->counts().drafts[static_cast<int>(DraftKind::kNgram)];
  EXPECT_EQ(counts.drafted, 7);
  EXPECT_EQ(counts.accepted, 2);
  EXPECT_EQ(sequence->drafted, 0);
}

TEST_F(DraftsTest, NoDraftTakesThePlaceOfASequenceThatWaitsOrRuns) {
  MakeDrafting(16);
  Sequence* const sequence = Begin(0, 5);
  Sequence* const other = Arrive(Counting(50, 3));
  EXPECT_THAT(Decide(), ElementsAre(sequence, other));
  EXPECT_EQ(sequence->drafted, 0);
  Return(sequence, 7);
  Return(other, 53);
  EXPECT_THAT(Decide(), ElementsAre(sequence, other));
  EXPECT_EQ(sequence->drafted, 0);
  Return(sequence, 8);
  scheduler_->Computed(other);
  scheduler_->End(other);
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  EXPECT_EQ(sequence->drafted, 5);
}

TEST_F(DraftsTest, SeveralSequencesMayDraftIfConfigured) {
  MakeDrafting(16, /*draft_sequences=*/2);
  Sequence* const first = Begin(0, 5);
  Sequence* const second = Arrive(Counting(50, 3));
  EXPECT_THAT(Decide(), ElementsAre(first, second));
  Return(first, 7);
  second->drafts = 2;
  second->acceptance = 1;
  Return(second, 53);
  EXPECT_THAT(Decide(), ElementsAre(first, second));
  EXPECT_EQ(first->drafted, 5);
  EXPECT_EQ(second->drafted, 2);
  EXPECT_EQ(decision_.size, (BatchSize{.tokens = 9, .sequences = 2, .longest = 6}));
}

TEST_F(DraftsTest, DraftsFillTheHeldPagesIfNoPageIsFree) {
  MakeDrafting(2);
  Sequence* const sequence = Begin(0, 5);
  Decide();
  EXPECT_EQ(sequence->drafted, 1);
  EXPECT_EQ(sequence->kv.ids.size(), 2u);
}

TEST_F(DraftsTest, AStepThatMayHaveDraftsIsNotStartedAhead) {
  MakeDrafting(16);
  Sequence* const sequence = Begin(0, 5);
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  scheduler_->KeepDrafts(sequence, 0);
  scheduler_->ReturnAhead(sequence, /*draws=*/true);
  EXPECT_THAT(Decide(/*ahead=*/true), IsEmpty());
  scheduler_->Recall(sequence);
  Return(sequence, 7);
  EXPECT_THAT(Decide(), ElementsAre(sequence));
  EXPECT_EQ(sequence->drafted, 5);
}

TEST_F(DraftsTest, AStepWithoutDraftsIsStartedAhead) {
  const auto starts_ahead = [&](const std::function<void(Sequence*)>& change) {
    MakeDrafting(16);
    Sequence* const sequence = Begin(0, 5);
    EXPECT_THAT(Decide(), ElementsAre(sequence));
    scheduler_->KeepDrafts(sequence, 0);
    scheduler_->ReturnAhead(sequence, /*draws=*/true);
    change(sequence);
    const bool launched = !Decide(/*ahead=*/true).empty();
    EXPECT_EQ(sequence->drafted, 0);
    return launched;
  };
  EXPECT_FALSE(starts_ahead([](Sequence*) {}));
  EXPECT_TRUE(starts_ahead([](Sequence* sequence) { sequence->drafts = 0; }));
  EXPECT_TRUE(starts_ahead([](Sequence* sequence) { sequence->acceptance = 0; }));
  EXPECT_TRUE(starts_ahead([&](Sequence*) { Arrive(Counting(50, 3)); })) << "another one waits";
  EXPECT_TRUE(starts_ahead([&](Sequence*) {
    for (int i = 0; i < 100; ++i) scheduler_->ObserveWait(1);
  })) << "the device would wait for too long";
}

TEST_F(DraftsTest, DraftsThatCostMoreThanTheyGainAreNotComputed) {
  generates_ = true;
  Make({.pages = 8, .page_tokens = 4, .draft_sequences = 1}, {});
  Sequence* const sequence = Begin(0, 5);
  sequence->acceptance = 0.9;
  for (int32_t tokens = 1; tokens <= 64; ++tokens) {
    scheduler_->Observe({.bucket = {.tokens = 64, .sequences = 8},
                         .computed_tokens = tokens,
                         .context_tokens = tokens,
                         .distinct_positions = tokens,
                         .sampled_rows = 1},
                        1e-3 * tokens);
  }
  Decide();
  EXPECT_EQ(sequence->drafted, 0);
}

}  // namespace
}  // namespace sluice
