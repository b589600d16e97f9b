// Checks that scheduling sequences with pages allocates no memory once it has seen similar
// sequences.
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "engine/ladder/ladder.h"
#include "engine/schedule/paged_scheduler.h"
#include "gtest/gtest.h"
#include "tests/support/allocation_counter.h"

namespace sluice {
namespace {

// A sequence with the storage of its history.
struct Sequence : PagedSequence {
  std::vector<int32_t> all;
};

// Rounds of sequences that share prefixes, generate and preempt each other.
class Rounds {
 public:
  Rounds()
      : scheduler_(
            {.prefill_tokens = 24}, {.pages = 60, .page_tokens = 4, .prefix_reuse = true},
            std::chrono::minutes(1),
            std::make_shared<const Ladder>(*BuildLadder({.strategy = StrategyKind::kGeometric},
                                                        {.max_tokens = 128, .max_sequences = 16})),
            CostModel(), nullptr),
        sequences_(64) {
    for (Sequence& sequence : sequences_) {
      sequence.all.reserve(96);
      sequence.kv.ids.reserve(24);
    }
  }

  void Run(int rounds) {
    for (int round = 0; round < rounds; ++round) Round();
  }
  const PagedScheduler& scheduler() const { return scheduler_; }

 private:
  void Round() {
    now_ += std::chrono::milliseconds(1);
    for (Sequence& sequence : sequences_) {
      if (sequence.all.empty() && random_() % 16 == 0) Arrive(&sequence);
    }
    if (!scheduler_.Decide(now_, false, &batch_).launch) return;
    for (WaitingSequence* waiting : batch_) EndStep(static_cast<Sequence*>(waiting));
  }

  // A sequence arrives once, so its object is made again; it keeps its storage.
  void Arrive(Sequence* sequence) {
    std::vector<int32_t> all = std::move(sequence->all), ids = std::move(sequence->kv.ids);
    std::destroy_at(sequence);
    std::construct_at(sequence);
    sequence->all = std::move(all);
    sequence->kv.ids = std::move(ids);
    const int32_t kind = static_cast<int32_t>(random_() % 4);
    for (int32_t i = 0; i < 48; ++i) {
      sequence->all.push_back(i < 32 ? kind : static_cast<int32_t>(random_() % 1000));
    }
    sequence->history = sequence->all;
    sequence->ticket = ++tickets_;
    sequence->queued = now_;
    sequence->generates = true;
    scheduler_.Arrive(sequence);
  }

  void EndStep(Sequence* sequence) {
    scheduler_.Computed(sequence);
    if (sequence->later_tokens == 0) {
      if (sequence->all.size() == 96) {
        scheduler_.End(sequence);
        sequence->all.clear();
        return;
      }
      sequence->all.push_back(static_cast<int32_t>(random_() % 1000));
      sequence->history = sequence->all;
    }
    scheduler_.Return(sequence);
  }

  PagedScheduler scheduler_;
  std::vector<Sequence> sequences_;
  std::vector<WaitingSequence*> batch_;
  std::mt19937_64 random_{1};
  MonoTime now_{std::chrono::seconds(1)};
  uint64_t tickets_ = 0;
};

TEST(PagedSchedulerSteadyState, AllocatesNothing) {
  Rounds rounds;
  rounds.Run(12000);  // so that the traffic histograms contain all sizes
  const int64_t before = Allocations();
  const PagedScheduler::Counts counts = rounds.scheduler().counts();
  rounds.Run(3000);
  EXPECT_EQ(Allocations() - before, 0);
  EXPECT_GT(rounds.scheduler().counts().preemptions, counts.preemptions);
  EXPECT_GT(rounds.scheduler().counts().reused_tokens, counts.reused_tokens);
}

}  // namespace
}  // namespace sluice
