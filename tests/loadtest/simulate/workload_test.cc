#include "loadtest/simulate/workload.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::loadtest {
namespace {

using ::testing::HasSubstr;

std::string FileOf(const std::string& text) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/simulate_workload_test_", getpid(), ".csv");
  std::ofstream(path) << text;
  return path;
}

TEST(ReadTraceLengths, CapsLengths) {
  const auto lengths = ReadTraceLengths(FileOf("arrival_s,input_tokens\n0.5,10\n0.5,9000\n"), 8192);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_THAT(*lengths, ::testing::ElementsAre(10, 8192));
}

TEST(ReadTraceLengths, NamesTheInvalidFile) {
  for (const char* text : {"", "arrival_s,input_tokens\n", "arrival_s,input_tokens\n0,0\n",
                           "arrival_s,input_tokens\n0,x\n"}) {
    SCOPED_TRACE(text);
    const auto lengths = ReadTraceLengths(FileOf(text), 100);
    ASSERT_EQ(lengths.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(lengths.status().message()), HasSubstr("simulate_workload_test_"));
  }
  EXPECT_FALSE(ReadTraceLengths("/nonexistent", 100).ok());
}

TEST(MakeArrivals, OffersTheRequestedLoad) {
  for (const Process process : {Process::kPoisson, Process::kBursty}) {
    std::mt19937_64 random(3);
    const std::vector<int32_t> lengths = MakeLengths(Lengths::kLogNormal, 50'000, 4096, &random);
    const std::vector<Arrival> arrivals = MakeArrivals(process, lengths, 1e7, &random);
    const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
    const double seconds =
        std::chrono::duration<double>(arrivals.back().at.time_since_epoch()).count();
    EXPECT_NEAR(tokens / seconds / 1e7, 1, 0.05);
    EXPECT_TRUE(std::ranges::is_sorted(arrivals, {}, &Arrival::at));
  }
}

TEST(MakeLengths, StayWithinTheCapAndDriftInThreePhases) {
  std::mt19937_64 random(4);
  for (const Lengths kind : {Lengths::kLogNormal, Lengths::kDrifting, Lengths::kRecommendation}) {
    for (const int32_t length : MakeLengths(kind, 10'000, 1000, &random)) {
      ASSERT_GE(length, 1);
      ASSERT_LE(length, 1000);
    }
  }
  const std::vector<int32_t> drifting = MakeLengths(Lengths::kDrifting, 3000, 1 << 20, &random);
  const auto mean = [&](size_t begin) {
    return std::accumulate(drifting.begin() + static_cast<ptrdiff_t>(begin),
                           drifting.begin() + static_cast<ptrdiff_t>(begin) + 1000, 0.0) /
           1000;
  };
  EXPECT_GT(mean(1000), 5 * mean(0));
  EXPECT_NE(mean(1000), mean(2000));
}

}  // namespace
}  // namespace sluice::loadtest
