#include "engine/schedule/host_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sluice {
namespace {

// Returns the fit to steps whose times vary by a fifth, plus `arrival_seconds` for each arrival of
// bursts.
HostTimes FitTo(double arrival_seconds, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(1), size(1);
  std::normal_distribution<double> noise(1, 0.2);
  std::vector<double> arrivals;
  double at = 0;
  double rate = 500;
  for (int i = 0; i < 20000; ++i) {
    if (i % 50 == 0) rate = random() % 2 == 0 ? 200 : 1000;
    arrivals.push_back(at += gap(random) / rate);
  }
  HostTimesFit fit;
  auto next = arrivals.begin();
  for (double begin = 0; begin < 20;) {
    const double expected = 1e-3 + 4e-3 * size(random);
    double end = begin + 0.95 * expected * std::max(noise(random), 0.1);
    const auto first = next;
    for (; next != arrivals.end() && *next < end; ++next) end += arrival_seconds;
    const auto foreseen = std::lower_bound(first, arrivals.end(), begin + expected) - first;
    fit.AddStep(expected, end - begin, next - first, foreseen);
    begin = end;
  }
  return fit.times();
}

// Slow steps have more arrivals. On a host with separate processors the arrivals take no time.
TEST(HostTimesFit, SeparatesTheTimeOfArrivalsFromSlowSteps) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  EXPECT_NEAR(FitTo(0, seed).arrival_seconds, 0, 30e-6);
  EXPECT_NEAR(FitTo(200e-6, seed).arrival_seconds, 200e-6, 40e-6);
}

TEST(HostTimesFit, TurnaroundsExcludeTheTimeOfArrivals) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  HostTimesFit fit;
  for (int i = 0; i < 100; ++i) {
    const int64_t arrivals = static_cast<int64_t>(random() % 10);
    fit.AddStep(1e-3, 1e-3 + 50e-6 * static_cast<double>(arrivals), arrivals, arrivals);
    const size_t sequences = 1 + random() % 20;
    const int64_t after = static_cast<int64_t>(random() % 4);
    fit.AddTurnaround(
        sequences, after,
        100e-6 + 20e-6 * static_cast<double>(sequences) + 50e-6 * static_cast<double>(after));
  }
  const HostTimes times = fit.times();
  EXPECT_NEAR(times.arrival_seconds, 50e-6, 1e-9);
  EXPECT_NEAR(times.turnaround_seconds, 100e-6, 1e-9);
  EXPECT_NEAR(times.turnaround_seconds_per_sequence, 20e-6, 1e-9);
}

TEST(HostTimesFit, IsZeroWithoutData) {
  const HostTimes times = HostTimesFit().times();
  EXPECT_EQ(times.arrival_seconds, 0);
  EXPECT_EQ(times.turnaround_seconds, 0);
  EXPECT_EQ(times.wake_seconds, 0);
}

}  // namespace
}  // namespace sluice
