// Checks that scheduling allocates no memory once it has seen similar sequences.
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "gtest/gtest.h"
#include "tests/support/allocation_counter.h"

namespace sluice {
namespace {

constexpr int32_t kMaxPositions = 1024;
const LadderLimits kLimits{
    .max_tokens = 4096, .max_sequences = 512, .max_positions = kMaxPositions};

Ladder LadderOf(PolicyKind policy) {
  return *BuildLadder({.strategy = StrategyKind::kGeometric}, policy, kLimits);
}

// Sequences that arrive, run and may return for another step. All sizes are multiples of 64, so
// that the histograms soon contain all of them.
class Clients {
 public:
  Clients(PolicyKind policy, bool running, uint64_t seed)
      : running_(running),
        scheduler_({.policy = policy, .max_queue_delay_us = 100}, std::chrono::minutes(5),
                   std::make_shared<const Ladder>(LadderOf(policy)), CostModel(), nullptr),
        sequences_(3000),
        random_(seed) {
    for (WaitingSequence& sequence : sequences_) idle_.push_back(&sequence);
  }

  void Rounds(int count) {
    for (int round = 0; round < count; ++round) Round();
  }

 private:
  void Round() {
    for (uint64_t i = random_() % 600; i > 0 && !idle_.empty(); --i) Arrive();
    now_ += std::chrono::microseconds(200);
    while (const WaitingSequence* expired = scheduler_.queue().Expired(now_)) {
      scheduler_.Remove(expired);
      idle_.push_back(&sequences_[expired->ticket % sequences_.size()]);
    }
    const BatchDecision decision = scheduler_.Decide({.now = now_}, &batch_);
    if (!decision.launch) return;
    scheduler_.Observe(ShapeOf(batch_, decision.bucket), 1e-4);
    for (WaitingSequence* sequence : batch_) {
      if (sequence->first_position == 0 && random_() % 2 == 0) {
        Continue(sequence);
        scheduler_.Return(sequence);
      } else {
        idle_.push_back(sequence);
      }
    }
  }

  // Continues with one token, or returns with the tokens of a new sequence.
  void Continue(WaitingSequence* sequence) const {
    sequence->first_position = sequence->tokens;
    sequence->tokens = running_ ? 1 : 64;
    sequence->running = running_;
  }

  void Arrive() {
    WaitingSequence& sequence = *idle_.back();
    idle_.pop_back();
    const auto index = static_cast<uint64_t>(&sequence - sequences_.data());
    sequence = {.ticket = ++arrivals_ * sequences_.size() + index,
                .priority = 1 + static_cast<int>(random_() % kPriorityLevels),
                .tokens = 64 << (random_() % 4),
                .generates = running_,
                .queued = now_};
    if (random_() % 2 == 0) sequence.deadline = now_ + std::chrono::milliseconds(random_() % 10);
    scheduler_.Arrive(&sequence);
  }

  const bool running_;
  Scheduler scheduler_;
  std::vector<WaitingSequence> sequences_;
  std::vector<WaitingSequence*> idle_, batch_;
  std::mt19937_64 random_;
  MonoTime now_{std::chrono::seconds(1)};
  uint64_t arrivals_ = 0;
};

TEST(SteadyState, NoPolicyAllocates) {
  for (const PolicyKind policy : {PolicyKind::kPacked, PolicyKind::kFifoPacked,
                                  PolicyKind::kPaddedBuckets, PolicyKind::kStaticPadded}) {
    SCOPED_TRACE(static_cast<int>(policy));
    Clients clients(policy, /*running=*/false, /*seed=*/1);
    clients.Rounds(3000);
    const int64_t before = Allocations();
    clients.Rounds(3000);
    EXPECT_EQ(Allocations() - before, 0);
  }
}

TEST(SteadyState, RunningSequencesAllocateNothing) {
  Clients clients(PolicyKind::kPacked, /*running=*/true, /*seed=*/1);
  clients.Rounds(5000);
  const int64_t before = Allocations();
  clients.Rounds(3000);
  EXPECT_EQ(Allocations() - before, 0);
}

TEST(AllocationCounter, Counts) {
  const int64_t before = Allocations();
  const auto integer = std::make_unique<int>(1);
  EXPECT_EQ(Allocations() - before, 1) << *integer;
}

}  // namespace
}  // namespace sluice
