#include "kernels/cpu/sample.h"

#include <cmath>
#include <map>

#include "kernels/philox.h"
#include "tests/kernels/cpu/draw_fixture.h"
#include "tests/support/table.h"

namespace sluice::kernels {
namespace {

class SampleTest : public DrawTest {};

std::vector<SampleParams> FilterCases() {
  std::vector<SampleParams> cases;
  for (float temperature : {0.3f, 1.0f, 2.5f}) {
    for (int32_t top_k : {0, 1, 5, 100}) {
      for (float top_p : {1.0f, 0.9f, 0.35f}) {
        for (float min_p : {0.0f, 0.2f}) {
          for (float typical_p : {1.0f, 0.8f, 0.2f}) {
            cases.push_back({.temperature = temperature,
                             .top_k = top_k,
                             .top_p = top_p,
                             .min_p = min_p,
                             .typical_p = typical_p});
          }
        }
      }
    }
  }
  return cases;
}

TEST_P(SampleTest, DrawsTheTokensOfTheReference) {
  std::mt19937_64 random(81);
  for (int64_t n : {1, 2, 40, 1500}) {
    const std::vector<float> x = RandomFloats(random, n, 5.0f);
    for (SampleParams params : FilterCases()) {
      params.seed = random();
      for (params.token_index = 0; params.token_index < 30; ++params.token_index) {
        params.sample = static_cast<uint32_t>(params.token_index % 3);
        const DrawResult result = DrawRow(x, params);
        ASSERT_EQ(result.token, reference::Sample(ToDouble(x), params))
            << "n " << n << " temperature " << params.temperature << " top_k " << params.top_k
            << " top_p " << params.top_p << " min_p " << params.min_p << " typical_p "
            << params.typical_p << " seed " << params.seed << " token " << params.token_index;
        ASSERT_NEAR(result.logprob, reference::LogSoftmax(ToDouble(x))[result.token], 2e-6);
      }
    }
  }
}

// One token has a third of the mass, and a hundred others the rest. The entropy is closer to the
// information of the others, so a small share consists only of others.
TEST_P(SampleTest, TypicalSamplingMayLeaveTheMostLikelyTokenOut) {
  std::vector<float> x(101, 0.0f);
  x[7] = std::log(50.0f);  // a third of the mass; each other token has a 150th
  SampleParams params{.temperature = 1, .typical_p = 0.4f, .seed = 3};
  std::map<bool, int> likeliest;
  for (params.token_index = 0; params.token_index < 200; ++params.token_index) {
    const int32_t token = DrawRow(x, params).token;
    ASSERT_EQ(token, reference::Sample(ToDouble(x), params));
    ++likeliest[token == 7];
  }
  EXPECT_EQ(likeliest[true], 0);
  params.typical_p = 0.9f;  // which needs the likeliest token
  likeliest.clear();
  for (params.token_index = 0; params.token_index < 200; ++params.token_index) {
    ++likeliest[DrawRow(x, params).token == 7];
  }
  EXPECT_GT(likeliest[true], 0);
}

// Compares Pearson's statistic with the reference's probabilities. Outcomes with a small expected
// count are pooled.
TEST_P(SampleTest, DrawsFollowTheDistribution) {
  std::mt19937_64 random(82);
  const std::vector<float> x = RandomFloats(random, 30, 2.0f);
  for (SampleParams params : FilterCases()) {
    params.seed = 1234;
    constexpr int kDraws = 4000;
    std::map<int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) {
      params.token_index = static_cast<uint64_t>(i);
      ++counts[DrawRow(x, params).token];
    }
    const reference::Distribution expected = reference::Filter(ToDouble(x), params);
    double total = 0, statistic = 0, rest_expected = 0, rest_seen = 0;
    for (double w : expected.weights) total += w;
    int cells = 0, seen = 0;
    const auto add = [&](double wanted, double got) {
      statistic += (got - wanted) * (got - wanted) / wanted;
      ++cells;
    };
    for (size_t i = 0; i < expected.ids.size(); ++i) {
      const double wanted = kDraws * expected.weights[i] / total;
      const int got = counts[expected.ids[i]];
      seen += got;
      EXPECT_TRUE(wanted > 0 || got == 0) << "a token of weight 0 was drawn";
      if (wanted >= 8) {
        add(wanted, got);
      } else {
        rest_expected += wanted;
        rest_seen += got;
      }
    }
    if (rest_expected >= 8) add(rest_expected, rest_seen);
    EXPECT_EQ(seen, kDraws) << "a token outside the filters was drawn";
    // The mean is cells - 1 and the variance twice that; five standard deviations are enough for a
    // fixed seed.
    const double freedom = std::max(cells - 1, 0);
    EXPECT_LE(statistic, freedom + 5 * std::sqrt(2 * freedom) + 1e-9)
        << "temperature " << params.temperature << " top_k " << params.top_k << " top_p "
        << params.top_p << " min_p " << params.min_p << " typical_p " << params.typical_p;
  }
}

TEST_P(SampleTest, TheNucleusIsExactWithoutTopKEvenWhenItIsNearlyTheWholeRow) {
  std::mt19937_64 random(83);
  const std::vector<float> x = RandomFloats(random, 6000, 0.5f);
  SampleParams params;
  params.temperature = 1.0f;
  for (float top_p : {0.01f, 0.5f, 0.99f, 0.99999f, std::nextafter(1.0f, 0.0f)}) {
    params.top_p = top_p;
    for (params.token_index = 0; params.token_index < 20; ++params.token_index) {
      ASSERT_EQ(DrawRow(x, params).token, reference::Sample(ToDouble(x), params)) << top_p;
    }
  }
}

TEST_P(SampleTest, GreedyIgnoresTheFiltersAndTakesTheFirstOfTheLargest) {
  ExpectGreedyTakesTheFirstOfTheLargest(DrawEach);
  const DrawResult only = DrawRow({7.0f}, {});
  EXPECT_EQ(only.token, 0);
  EXPECT_EQ(only.logprob, 0.0f);
}

TEST_P(SampleTest, ReportsAnyNumberOfTopTokensWithTiesByIndex) {
  std::mt19937_64 random(84);
  ExpectCandidatesEqualReference(DrawEach, random, 2e-6);
}

TEST_P(SampleTest, ExtremeParametersDrawAValidToken) {
  const std::vector<float> x = {1.0f, 3.0f, -kInfinity, 3.0f, -50.0f, -kInfinity};
  for (float temperature : {1e-45f, 1e-30f, 1.0f, 1e30f, 3.4e38f, kInfinity}) {
    for (float top_p : {1e-30f, 0.5f, 1.0f}) {
      for (float min_p : {0.0f, 1e-30f, 1.0f}) {
        for (int32_t top_k : {0, 1, 4, 5, 6, 1 << 30}) {
          SampleParams params = {temperature, top_k, top_p, min_p};
          for (params.token_index = 0; params.token_index < 10; ++params.token_index) {
            const DrawResult result = DrawRow(x, params);
            ASSERT_TRUE(result.token >= 0 && result.token < 6 && std::isfinite(x[result.token]))
                << temperature << " " << top_k << " " << top_p << " " << min_p;
            if (temperature < 1e-20f || (min_p == 1.0f && temperature <= 1.0f)) {
              ASSERT_EQ(x[result.token], 3.0f);
            }
          }
        }
      }
    }
  }
}

TEST_P(SampleTest, RowsThatAreNotFiniteHaveNoTokenAndWriteNoCandidates) {
  ExpectRowsThatAreNotFiniteHaveNoToken(DrawEach);
}

TEST_P(SampleTest, SeedTokenAndSampleEachChangeTheDraw) {
  const std::vector<float> x(1000, 0.0f);
  SampleParams base;
  base.temperature = 1.0f;
  SampleParams seed = base, high_seed = base, token = base, high_token = base, sample = base;
  seed.seed = 1;
  high_seed.seed = uint64_t{1} << 40;
  token.token_index = 1;
  high_token.token_index = uint64_t{1} << 40;
  sample.sample = 1;
  std::map<int32_t, int> tokens;
  for (const SampleParams& params : {base, seed, high_seed, token, high_token, sample}) {
    ++tokens[DrawRow(x, params).token];
    EXPECT_EQ(DrawRow(x, params).token, DrawRow(x, params).token);
  }
  EXPECT_EQ(tokens.size(), 6u);
}

SLUICE_EVERY_F32_PROFILE(SampleTest);

// The answers are published with the Random123 library.
struct PhiloxRow {
  const char* name;
  uint64_t key;
  std::vector<uint32_t> counter, words;
};
class PhiloxTable : public TableTest<PhiloxRow> {};

TEST_P(PhiloxTable, GivesTheKnownAnswers) {
  std::vector<uint32_t> words(4);
  Philox(row().key, row().counter.data(), words.data());
  EXPECT_EQ(words, row().words);
}

const PhiloxRow kPhiloxRows[] = {
    {.name = "OfZeros",
     .key = 0,
     .counter = {0, 0, 0, 0},
     .words = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {.name = "OfOnes",
     .key = ~uint64_t{0},
     .counter = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     .words = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {.name = "OfTheDigitsOfPi",
     .key = 0x299f31d0a4093822,
     .counter = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     .words = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};
SLUICE_TABLE(PhiloxTable, kPhiloxRows);

}  // namespace
}  // namespace sluice::kernels
