// Times a decision for queues of different lengths.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "engine/ladder/ladder.h"
#include "engine/schedule/batch_former.h"

namespace sluice {
namespace {

enum Workload { kPrompts, kDecode, kMixed, kDeadlines, kRunning };

constexpr size_t kMostRunning = 256;
constexpr int32_t kChunkTokens = 512;

Ladder LadderOf(PolicyKind policy, Workload workload) {
  const LadderLimits limits{.max_tokens = 16384,
                            .max_sequences = workload == kRunning ? 512 : 256,
                            .max_positions = 8192};
  return *BuildLadder({.strategy = StrategyKind::kGeometric}, policy, limits);
}

// A queue of `count` sequences of the workload, with the policy's ladder of ratio sqrt(2) up to
// 16,384 tokens. With kRunning, the first kMostRunning sequences decode and the others are prompts
// in chunks that will decode.
class Fixture {
 public:
  Fixture(size_t count, Workload workload, PolicyKind policy)
      : ladder_(LadderOf(policy, workload)), sequences_(count) {
    std::mt19937_64 random(1);
    std::lognormal_distribution<double> length(std::log(800.0), 0.9);
    for (size_t i = 0; i < count; ++i) {
      WaitingSequence& sequence = sequences_[i];
      sequence.ticket = i;
      sequence.queued = MonoTime(std::chrono::microseconds(i));
      sequence.running = workload == kRunning && i < kMostRunning;
      const bool decode =
          workload == kDecode || (workload == kMixed && i % 4 != 0) || sequence.running;
      sequence.tokens = decode ? 1 : std::clamp(static_cast<int32_t>(length(random)), 1, 8192);
      sequence.first_position = decode ? 500 : 0;
      if (workload == kRunning) {
        sequence.generates = true;
        sequence.later_tokens = std::max(sequence.tokens - kChunkTokens, 0);
        sequence.tokens -= sequence.later_tokens;
        sequence.pages = (sequence.tokens + 15) / 16;
      }
      if (workload == kDeadlines) {
        sequence.deadline = kNow + std::chrono::microseconds(random() % 100'000);
      }
      queue_.Push(&sequence);
    }
    for (int round = 0; round < 20; ++round) {
      for (const Bucket& bucket : ladder_.buckets()) {
        costs_.Observe({.bucket = bucket, .computed_tokens = bucket.tokens},
                       60e-6 + 0.04e-6 * bucket.tokens);
      }
    }
  }

  BatchDecision Form(BatchFormer* former, std::vector<WaitingSequence*>* batch) const {
    return former->Form(queue_, {.ladder = &ladder_, .costs = &costs_}, kNow, batch);
  }

  // Returns the totals for admitting a request whose deadline is later than half of the others.
  DueTotals::Total Due() const {
    return queue_.PromptsDueBy(kNow + std::chrono::milliseconds(50), kPriorityLevels);
  }

  // Decides once, takes the batch and returns it to the queue.
  void Cycle(BatchFormer* former, std::vector<WaitingSequence*>* batch) {
    Form(former, batch);
    queue_.Take(*batch);
    for (WaitingSequence* sequence : *batch) queue_.Push(sequence);
  }

 private:
  static constexpr MonoTime kNow{std::chrono::seconds(10)};

  const Ladder ladder_;
  std::vector<WaitingSequence> sequences_;
  SequenceQueue queue_{std::chrono::seconds(1)};
  CostModel costs_;
};

void BM_Decide(benchmark::State& state, PolicyKind policy, Workload workload) {
  const Fixture fixture(static_cast<size_t>(state.range(0)), workload, policy);
  const std::unique_ptr<BatchFormer> former = MakeBatchFormer({.policy = policy});
  std::vector<WaitingSequence*> batch;
  for (auto _ : state) benchmark::DoNotOptimize(fixture.Form(former.get(), &batch));
}

void BM_DecideAndTake(benchmark::State& state, PolicyKind policy, Workload workload) {
  Fixture fixture(static_cast<size_t>(state.range(0)), workload, policy);
  const std::unique_ptr<BatchFormer> former = MakeBatchFormer({.policy = policy});
  std::vector<WaitingSequence*> batch;
  for (auto _ : state) fixture.Cycle(former.get(), &batch);
}

void BM_DueBy(benchmark::State& state) {
  const Fixture fixture(static_cast<size_t>(state.range(0)), kDeadlines, PolicyKind::kPacked);
  for (auto _ : state) benchmark::DoNotOptimize(fixture.Due());
}

void Sizes(benchmark::internal::Benchmark* bench) {
  for (int64_t count : {10, 100, 1000, 10'000, 100'000}) bench->Arg(count);
}

BENCHMARK_CAPTURE(BM_Decide, fifo_prompts, PolicyKind::kFifoPacked, kPrompts)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Decide, padded_buckets_prompts, PolicyKind::kPaddedBuckets, kPrompts)
    ->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Decide, static_padded_prompts, PolicyKind::kStaticPadded, kPrompts)
    ->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Decide, packed_prompts, PolicyKind::kPacked, kPrompts)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Decide, packed_decode, PolicyKind::kPacked, kDecode)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Decide, packed_mixed, PolicyKind::kPacked, kMixed)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Decide, packed_deadlines, PolicyKind::kPacked, kDeadlines)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Decide, packed_running, PolicyKind::kPacked, kRunning)
    ->Arg(kMostRunning + 1000);
BENCHMARK_CAPTURE(BM_DecideAndTake, packed_running, PolicyKind::kPacked, kRunning)
    ->Arg(kMostRunning + 1000);
BENCHMARK_CAPTURE(BM_DecideAndTake, packed_prompts, PolicyKind::kPacked, kPrompts)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_DecideAndTake, packed_mixed, PolicyKind::kPacked, kMixed)->Apply(Sizes);
BENCHMARK(BM_DueBy)->Apply(Sizes);

}  // namespace
}  // namespace sluice
