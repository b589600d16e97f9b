// Drafted tokens on virtual time: the drafts of one sequence delay no other sequence.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/schedule/paged_scheduler.h"
#include "engine/schedule/step_shape.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

constexpr int32_t kMostDrafts = 8;
constexpr microseconds kStep{100}, kToken{20};
constexpr microseconds kLongestDraftStep = kStep + kToken * (1 + kMostDrafts);
constexpr microseconds kDraft{30};  // of the draft model, for each token

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

// A run of arrivals next to one sequence that generates all the time.
class DraftRun {
 public:
  DraftRun(uint64_t seed, int32_t draft_sequences, DraftKind kind = DraftKind::kNgram)
      : random_(seed),
        kind_(kind),
        scheduler_(
            {.max_batch_sequences = 8, .prefill_tokens = 32},
            {.pages = 4096,
             .step_pages = 512,
             .page_tokens = 4,
             .draft_sequences = draft_sequences,
             .always_draft = true},
            std::chrono::minutes(1),
            std::make_shared<const Ladder>(std::vector<Bucket>{{.tokens = 64, .sequences = 8}}),
            CostModel(ComputedRows::OfBatch()), nullptr) {}

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
      ASSERT_TRUE(scheduler_.Decide(now_, false, &batch).launch);
      drafting_ended_ = false;
      if (kind_ == DraftKind::kModel) {
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

  // Returns whether the sequence has ended.
  bool EndStep(Sequence* sequence) {
    if (sequence->later_tokens == 0) {
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
      sequence->draft_kind = kind_;
    }
    scheduler_.Return(sequence);
    return false;
  }

  std::mt19937_64 random_;
  const DraftKind kind_;
  PagedScheduler scheduler_;
  std::list<Sequence> live_;
  MonoTime now_{std::chrono::seconds(1)};
  uint64_t tickets_ = 0;
  int64_t drafted_ = 0, ended_ = 0;
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
// or runs, no step has drafts.
// A sequence that arrives while a draft model works waits for one of its tokens and a step without
// drafts.
TEST(DraftDelay, OneSequenceThatDraftsDelaysNoOther) {
  for (const DraftKind kind : {DraftKind::kNgram, DraftKind::kModel}) {
    int64_t drafted = 0, ended = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      SCOPED_TRACE(seed);
      DraftRun run(seed, /*draft_sequences=*/1, kind);
      run.Play(RandomArrivals(seed));
      if (HasFatalFailure()) return;
      ASSERT_EQ(run.delay(), nanoseconds(0));
      drafted += run.drafted();
      ended += run.ended();
    }
    EXPECT_GT(drafted, 100'000);
    EXPECT_EQ(ended > 100, kind == DraftKind::kModel);
  }
}

TEST(DraftDelay, DraftsInSharedStepsDelayOthers) {
  DraftRun run(1, /*draft_sequences=*/8);
  run.Play(RandomArrivals(1));
  EXPECT_GT(run.delay(), nanoseconds(0));
}

}  // namespace
}  // namespace sluice
