#include "loadtest/load/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace sluice::load {
namespace {

std::vector<int32_t> Draw(const std::string& spec, int32_t cap, size_t count = 20'000) {
  const auto lengths = MakeLengths(spec, cap);
  EXPECT_TRUE(lengths.ok()) << lengths.status();
  std::mt19937_64 random(5);
  std::vector<int32_t> drawn(count);
  for (int32_t& each : drawn) each = (*lengths)->Next(random);
  return drawn;
}

int32_t Median(std::vector<int32_t> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

TEST(MakeLengths, StaysWithinTheCap) {
  for (const char* spec :
       {"fixed:500", "uniform:1:999", "lognormal:64:3", "zipf:0.5", "recommendation"}) {
    for (int32_t length : Draw(spec, 100)) {
      ASSERT_GE(length, 1) << spec;
      ASSERT_LE(length, 100) << spec;
    }
  }
}

TEST(MakeLengths, HasTheRequestedDistribution) {
  EXPECT_THAT(Draw("fixed:7", 100), testing::Each(7));
  const std::vector<int32_t> uniform = Draw("uniform:10:19", 100);
  EXPECT_EQ(*std::min_element(uniform.begin(), uniform.end()), 10);
  EXPECT_EQ(*std::max_element(uniform.begin(), uniform.end()), 19);
  EXPECT_NEAR(Median(Draw("lognormal:64:0.8", 100'000)), 64, 3);
  const std::vector<int32_t> zipf = Draw("zipf:1", 1000);
  const auto ones = static_cast<double>(std::count(zipf.begin(), zipf.end(), 1));
  const auto twos = static_cast<double>(std::count(zipf.begin(), zipf.end(), 2));
  EXPECT_NEAR(ones / twos, 2, 0.3);
  const std::vector<int32_t> histories = Draw("recommendation", 256);
  EXPECT_GT(std::count(histories.begin(), histories.end(), 256),
            20 * std::count(histories.begin(), histories.end(), 255))
      << "long histories pile up at the cap";
}

TEST(MakeLengths, DrawsFromAHistogram) {
  const std::string path = testing::TempDir() + "/lengths.csv";
  std::ofstream(path) << "tokens,count\n5,1\n9,3\n12,0\n";
  std::map<int32_t, int> counts;
  for (int32_t length : Draw("file:" + path, 100)) ++counts[length];
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_NEAR(static_cast<double>(counts[9]) / counts[5], 3, 0.3);
}

TEST(MakeLengths, RefusesAnUnknownSpecification) {
  for (const char* spec :
       {"", "fixed", "fixed:", "fixed:x", "fixed:0", "fixed:-1", "fixed:nan", "fixed:inf",
        "fixed:1:2", "uniform:5:4", "uniform:0.5:4", "lognormal:64", "lognormal:64:11", "zipf:-1",
        "recommendation:1", "trace", "normal:1:2", "fixed:1e99"}) {
    const auto made = MakeLengths(spec, 100);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << spec;
  }
  EXPECT_EQ(MakeLengths("fixed:1", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeLengths("file:/no/such", 9).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::load
