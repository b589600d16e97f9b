// Tests on virtual time that no caller waits for long because of others, at any load of the others.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "engine/review/virtual_run.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"

namespace sluice {
namespace {

constexpr uint32_t kQuiet = 1;  // the caller that sends one sequence at a time
constexpr int32_t kLongest = 600;
constexpr int32_t kStepTokens = 1024;

double Cost(const StepShape& step) { return 1e-3 + 2e-6 * step.computed_tokens; }
constexpr double kFullStep = 1e-3 + 2e-6 * kStepTokens;

std::shared_ptr<const Ladder> LadderOf256() {
  return std::make_shared<const Ladder>(std::vector<Bucket>{
      {.tokens = 256, .sequences = 64}, {.tokens = kStepTokens, .sequences = 64}});
}

struct Load {
  uint32_t flooding = 1;  // callers that together send `times` the device's capacity
  double times = 5;
  int32_t max_overtakes = 64;
  bool told_apart = true;
};

// Returns two seconds of arrivals. The quiet caller sends a sequence each 50 ms.
std::vector<Arrival> ArrivalsOf(const Load& load, std::mt19937_64* random) {
  std::vector<Arrival> arrivals;
  const double tokens_per_second = load.times * kStepTokens / kFullStep;
  std::exponential_distribution<double> gap(tokens_per_second / (kLongest / 2.0));
  for (double at = 0; at < 2; at += gap(*random)) {
    arrivals.push_back({.at = AtMicroseconds(static_cast<int64_t>(at * 1e6)),
                        .tokens = 1 + static_cast<int32_t>((*random)() % kLongest),
                        .caller = kQuiet + 1 + static_cast<uint32_t>((*random)() % load.flooding)});
  }
  for (int64_t at = 10'000; at < 2'000'000; at += 50'000) {
    arrivals.push_back({.at = AtMicroseconds(at + static_cast<int64_t>((*random)() % 40'000)),
                        .tokens = 1 + static_cast<int32_t>((*random)() % kLongest),
                        .caller = kQuiet});
  }
  std::sort(arrivals.begin(), arrivals.end(),
            [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  return arrivals;
}

// Returns the longest latency of a sequence of the quiet caller, in full steps.
double LongestOfQuiet(const Load& load, std::mt19937_64* random) {
  std::vector<Arrival> arrivals = ArrivalsOf(load, random);
  std::vector<bool> quiet;
  for (Arrival& arrival : arrivals) {
    quiet.push_back(arrival.caller == kQuiet);
    if (!load.told_apart) arrival.caller = 0;
  }
  Scheduler scheduler({.max_overtakes = load.max_overtakes}, std::chrono::minutes(1), LadderOf256(),
                      CostModel(), nullptr);
  double longest = 0;
  RunVirtually(arrivals,
               {.cost = Cost,
                .on_done =
                    [&](size_t arrival, MonoTime end, bool) {
                      if (!quiet[arrival]) return;
                      const std::chrono::duration<double> took = end - arrivals[arrival].at;
                      longest = std::max(longest, took.count() / kFullStep);
                    }},
               &scheduler);
  return longest;
}

// The bound: the step in progress, one step for each other caller, whose sequence may be at the
// head before it, and its own.
TEST(FairOrder, ACallerWaitsForOneSequenceOfEachOtherCaller) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Load load{.flooding = 1 + static_cast<uint32_t>(random() % 8),
                    .times = 2.0 + static_cast<double>(random() % 9),
                    .max_overtakes = static_cast<int32_t>(random() % 65)};
    EXPECT_LE(LongestOfQuiet(load, &random), 2 + load.flooding);
  }
}

TEST(FairOrder, WithoutCallersAllWaitForTheBacklog) {
  std::mt19937_64 random(1);
  EXPECT_GT(LongestOfQuiet({.told_apart = false}, &random), 100);
}

// Callers whose sequences differ in length get equal tokens, not equal numbers of sequences.
TEST(FairOrder, CallersGetEqualShares) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<Arrival> arrivals;
    const uint32_t callers = 2 + static_cast<uint32_t>(random() % 4);
    for (uint32_t caller = 1; caller <= callers; ++caller) {
      const int32_t longest = 10 << caller;
      for (int32_t tokens = 0; tokens < 100'000;) {
        arrivals.push_back(
            {.tokens = 1 + static_cast<int32_t>(random() % longest), .caller = caller});
        tokens += arrivals.back().tokens;
      }
    }
    std::shuffle(arrivals.begin(), arrivals.end(), random);
    Scheduler scheduler({}, std::chrono::minutes(1), LadderOf256(), CostModel(), nullptr);
    std::map<uint32_t, int64_t> served;
    int64_t total = 0;
    RunVirtually(arrivals,
                 {.cost = Cost,
                  .on_batch =
                      [&](const VirtualBatch& batch) {
                        if (total > 50'000 * callers) return;  // all callers still have sequences
                        for (const WaitingSequence* sequence : batch.sequences) {
                          served[sequence->caller] += sequence->tokens;
                          total += sequence->tokens;
                        }
                      }},
                 &scheduler);
    for (const auto& [caller, tokens] : served) {
      // A batch is filled up from the window after its head.
      EXPECT_NEAR(static_cast<double>(tokens), 50'000.0, 5'000.0) << caller;
    }
  }
}

}  // namespace
}  // namespace sluice
