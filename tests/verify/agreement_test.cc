#include "verify/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace sluice::verify {
namespace {

TextOutputs At(double angle, std::vector<double> logprobs = {}, std::vector<double> scores = {}) {
  const int64_t labels = std::ssize(scores);
  return {std::move(logprobs), {std::cos(angle), std::sin(angle)}, std::move(scores), labels};
}

TEST(AgreementTest, MeasuresDifferencesOfLogProbabilitiesAndBits) {
  const std::vector<Text> texts = {{{1, 2, 3}, 4}, {{1, 2}, 4}};
  const std::vector<TextOutputs> f32 = {At(0, {-1, -2}), At(0, {-3})};
  const std::vector<TextOutputs> faster = {At(0, {-1.5, -2}), At(0, {-2.75})};
  const Agreement agreement = Compare(texts, f32, faster);
  ASSERT_TRUE(agreement.tokens.has_value());
  EXPECT_EQ(agreement.tokens->tokens, 3);
  EXPECT_EQ(agreement.tokens->bytes, 8);
  EXPECT_DOUBLE_EQ(agreement.tokens->largest, 0.5);
  EXPECT_DOUBLE_EQ(agreement.tokens->mean, 0.25);
  EXPECT_DOUBLE_EQ(agreement.tokens->bits_f32, 6 / std::log(2));
  EXPECT_DOUBLE_EQ(agreement.tokens->bits, 6.25 / std::log(2));
  EXPECT_FALSE(agreement.labels.has_value());
}

TEST(AgreementTest, BytesAreUnknownIfOneTextHasNone) {
  const std::vector<Text> texts = {{{1, 2}, 4}, {{1, 2}, 0}};
  const std::vector<TextOutputs> outputs = {At(0, {-1}), At(0, {-3})};
  EXPECT_EQ(Compare(texts, outputs, outputs).tokens->bytes, 0);
}

// Thirteen texts at growing angles, so that each text's nearest texts are its neighbours.
TEST(AgreementTest, MeasuresCosinesAndTheNearestTexts) {
  constexpr int kTexts = 13;
  const std::vector<Text> texts(kTexts, {{1}, 1});
  std::vector<TextOutputs> f32;
  for (int i = 0; i < kTexts; ++i) f32.push_back(At(0.01 * i * (i + 1)));
  Agreement agreement = Compare(texts, f32, f32);
  EXPECT_EQ(agreement.nearest, 10);
  EXPECT_EQ(agreement.same_nearest, 1);
  EXPECT_EQ(agreement.nearest_in_common, 1);
  EXPECT_NEAR(agreement.mean_cosine, 1, 1e-12);

  std::vector<TextOutputs> faster = f32;
  faster[0] = At(0.01 * kTexts * (kTexts + 1));  // after the last one
  agreement = Compare(texts, f32, faster);
  EXPECT_NEAR(agreement.least_cosine, std::cos(0.01 * kTexts * (kTexts + 1)), 1e-12);
  EXPECT_LT(agreement.same_nearest, 1);
  EXPECT_GT(agreement.nearest_in_common, 0.8);
  for (TextOutputs& each : faster) {
    for (double& value : each.embedding) value *= 3;
  }
  EXPECT_EQ(Compare(texts, f32, faster).nearest_in_common, agreement.nearest_in_common);
}

TEST(AgreementTest, CountsTheLabelsThatFlip) {
  const std::vector<Text> texts(2, {{1}, 1});
  const std::vector<TextOutputs> f32 = {At(0, {}, {1, 2}), At(0, {}, {5, 1})};
  const std::vector<TextOutputs> faster = {At(0, {}, {2, 1}), At(0, {}, {5, 1})};
  const Agreement agreement = Compare(texts, f32, faster);
  ASSERT_TRUE(agreement.labels.has_value());
  EXPECT_EQ(agreement.labels->flips, 1);
  EXPECT_EQ(agreement.labels->largest, 1);
  EXPECT_EQ(agreement.labels->mean, 0.5);
  EXPECT_FALSE(agreement.tokens.has_value());
}

}  // namespace
}  // namespace sluice::verify
