// Drafted tokens on virtual time: the drafts of one sequence delay no other sequence.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "engine/schedule/paged_scheduler.h"
#include "engine/schedule/step_shape.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

constexpr int32_t kMostDrafts = 8;
constexpr microseconds kStep{100}, kToken{20};
constexpr microseconds kLongestDraftStep = kStep + kToken * (1 + kMostDrafts);
constexpr microseconds kDraft{30};  // of the draft model, for each token
constexpr microseconds kHost{10};   // between two steps, unless the second one starts ahead

struct Sequence : PagedSequence {
  std::vector<int32_t> all;
  int32_t to_draw = 0;
  bool drafts_tokens = false;

  void Append(int32_t token) {
    all.push_back(token);
    history = all;
  }
};

struct Arrival {
  MonoTime at;
  int32_t prompt = 0, generated = 0;
};

struct Device {
  DraftKind kind = DraftKind::kNgram;
  bool ahead = false;  // whether steps start ahead
};

// A run of arrivals next to one sequence that generates all the time.
class DraftRun {
 public:
  DraftRun(uint64_t seed, int32_t draft_sequences, const Device& device = {})
      : random_(seed),
        device_(device),
        scheduler_(
            {.max_batch_sequences = 8, .prefill_tokens = 32},
            {.pages = 4096,
             .step_pages = 512,
             .page_tokens = 4,
             .draft_sequences = draft_sequences},
            std::chrono::minutes(1),
            std::make_shared<const Ladder>(std::vector<Bucket>{{.tokens = 64, .sequences = 8}}),
            CostsOfEqualSteps(), nullptr) {}

  void Play(const std::vector<Arrival>& arrivals) {
    Add({.at = now_, .prompt = 4, .generated = 4000}, /*drafts_tokens=*/true);
    size_t next = 0;
    std::vector<WaitingSequence*> batch;
    nanoseconds step{0};
    while (!live_.empty()) {
      for (; next < arrivals.size() && arrivals[next].at <= now_; ++next) {
        ASSERT_LE(now_ - arrivals[next].at, step + (drafting_ended_ ? kDraft : kDraft.zero()));
        Add(arrivals[next], /*drafts_tokens=*/false);
      }
      batch.swap(ahead_);
      ahead_.clear();
      if (batch.empty()) {
        ASSERT_TRUE(scheduler_.Decide(now_, false, &batch).launch);
      }
      drafting_ended_ = false;
      if (device_.kind == DraftKind::kModel) {
        const MonoTime arrives = next < arrivals.size() ? arrivals[next].at : MonoTime::max();
        for (WaitingSequence* sequence : batch) Draft(static_cast<Sequence*>(sequence), arrives);
      }
      int64_t drafted = 0, tokens = 0;
      for (WaitingSequence* sequence : batch) {
        drafted += static_cast<Sequence*>(sequence)->drafted;
        tokens += sequence->tokens;
      }
      step = kStep + kToken * tokens;
      if (drafted > 0 && live_.size() == 1) {
        ASSERT_LE(step, kLongestDraftStep);
      }
      drafted_ += drafted;
      delay_ += kToken * drafted * (std::ssize(live_) - 1);
      if (device_.ahead && drafted == 0) DecideAhead(batch);
      if (::testing::Test::HasFatalFailure()) return;
      if (device_.ahead && ahead_.empty()) step += kHost;
      scheduler_.ObserveWait(Seconds(kHost));
      now_ += step;
      for (WaitingSequence* waiting : batch) {
        auto* const sequence = static_cast<Sequence*>(waiting);
        if (!EndStep(sequence)) continue;
        live_.remove_if([&](const Sequence& other) { return &other == sequence; });
      }
    }
    ASSERT_EQ(next, arrivals.size());
  }

  int64_t drafted() const { return drafted_; }
  // Returns the time that the drafts of the first sequence added to steps while other sequences
  // waited or ran, summed over these sequences.
  nanoseconds delay() const { return delay_; }
  // Returns the number of arrivals that ended the work of the draft model.
  int64_t ended() const { return ended_; }
  // Return the number of steps that started ahead, and of the steps that did not for drafts.
  int64_t ahead() const { return steps_ahead_; }
  int64_t awaited() const { return awaited_; }

 private:
  void Add(const Arrival& arrival, bool drafts_tokens) {
    Sequence& sequence = live_.emplace_back();
    sequence.ticket = ++tickets_;
    sequence.queued = arrival.at;
    sequence.to_draw = arrival.generated;
    sequence.generates = arrival.generated > 1;
    sequence.drafts_tokens = drafts_tokens;
    sequence.kv.ids.reserve(2048);
    for (int32_t i = 0; i < arrival.prompt; ++i) sequence.Append(i);
    scheduler_.Arrive(&sequence);
  }

  // Drafts the tokens of the sequence's step by a draft model, or none if another sequence arrives
  // in this time.
  void Draft(Sequence* sequence, MonoTime arrives) {
    for (int32_t i = 0; i < sequence->drafted && arrives > now_; ++i) now_ += kDraft;
    if (sequence->drafted == 0 || arrives > now_) return;
    scheduler_.KeepDrafts(sequence, 0);
    drafting_ended_ = true;
    ++ended_;
  }

  // Decides the step after the running one. A step waits for drafts only if no other sequence
  // waits or runs after it.
  void DecideAhead(std::span<WaitingSequence* const> batch) {
    std::vector<Sequence*> returned;
    for (WaitingSequence* waiting : batch) {
      auto* const sequence = static_cast<Sequence*>(waiting);
      if (sequence->later_tokens == 0 && sequence->to_draw == 1) continue;
      scheduler_.ReturnAhead(sequence, sequence->later_tokens == 0);
      returned.push_back(sequence);
    }
    const SequenceQueue& queue = scheduler_.scheduler().queue();
    const bool decodes = queue.running() > 0;
    const auto* const first = static_cast<const Sequence*>(queue.First());
    const bool may_draft = queue.size() == 1 && first->drafts_tokens;
    const bool launched = scheduler_.Decide(now_, false, &ahead_, /*ahead=*/true).launch;
    steps_ahead_ += launched ? 1 : 0;
    if (decodes && !launched) {
      ASSERT_TRUE(may_draft);
      ++awaited_;
    }
    for (Sequence* sequence : returned) {
      if (sequence->state() == SequenceState::kQueuedAhead) scheduler_.Recall(sequence);
    }
  }

  // Returns whether the sequence has ended.
  bool EndStep(Sequence* sequence) {
    const bool continues = sequence->state() == SequenceState::kRunningAhead;
    const NextStep& step = continues ? sequence->in_progress : sequence->step();
    if (step.later_tokens == 0) {
      const auto accepted =
          static_cast<int32_t>(random_() % static_cast<uint64_t>(sequence->drafted + 1));
      sequence->rejected = sequence->drafted - accepted;
      for (int32_t i = 0; i <= accepted; ++i) sequence->Append(7);
      sequence->to_draw -= 1 + accepted;
    }
    scheduler_.Computed(sequence);
    if (sequence->to_draw == 0) {
      scheduler_.End(sequence);
      return true;
    }
    if (sequence->drafts_tokens) {
      sequence->drafts = std::min(kMostDrafts, sequence->to_draw - 1);
      sequence->acceptance = 0.5;
      sequence->draft_kind = device_.kind;
    }
    scheduler_.Return(sequence);
    return false;
  }

  std::mt19937_64 random_;
  const Device device_;
  PagedScheduler scheduler_;
  std::list<Sequence> live_;
  std::vector<WaitingSequence*> ahead_;  // the step that starts ahead
  MonoTime now_{std::chrono::seconds(1)};
  uint64_t tickets_ = 0;
  int64_t drafted_ = 0, ended_ = 0, steps_ahead_ = 0, awaited_ = 0;
  bool drafting_ended_ = false;  // before the latest step
  nanoseconds delay_{0};
};

std::vector<Arrival> RandomArrivals(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Arrival> arrivals;
  MonoTime at{std::chrono::seconds(1)};
  for (int i = 0; i < 30; ++i) {
    at += microseconds(random() % 8000);
    arrivals.push_back({.at = at,
                        .prompt = static_cast<int32_t>(1 + random() % 60),
                        .generated = static_cast<int32_t>(1 + random() % 20)});
  }
  return arrivals;
}

// A sequence that arrives during a step with drafts waits for the end of that step. While it waits
// or runs, no step has drafts, and steps start ahead as without drafts.
// A sequence that arrives while a draft model works waits for one of its tokens and a step without
// drafts.
TEST(DraftDelay, OneSequenceThatDraftsDelaysNoOther) {
  for (const Device& device : {Device{}, Device{.kind = DraftKind::kModel}, Device{.ahead = true},
                               Device{.kind = DraftKind::kModel, .ahead = true}}) {
    int64_t drafted = 0, ended = 0, ahead = 0, awaited = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      SCOPED_TRACE(seed);
      DraftRun run(seed, /*draft_sequences=*/1, device);
      run.Play(RandomArrivals(seed));
      if (HasFatalFailure()) return;
      ASSERT_EQ(run.delay(), nanoseconds(0));
      drafted += run.drafted();
      ended += run.ended();
      ahead += run.ahead();
      awaited += run.awaited();
    }
    EXPECT_GT(drafted, 100'000);
    EXPECT_EQ(ended > 100, device.kind == DraftKind::kModel);
    EXPECT_EQ(ahead > 10'000, device.ahead);
    EXPECT_EQ(awaited > 100, device.ahead);
  }
}

TEST(DraftDelay, DraftsInSharedStepsDelayOthers) {
  DraftRun run(1, /*draft_sequences=*/8);
  run.Play(RandomArrivals(1));
  EXPECT_GT(run.delay(), nanoseconds(0));
}

}  // namespace
}  // namespace sluice
