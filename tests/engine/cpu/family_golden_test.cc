// Compares each family of checkpoints with the transformers library (tests/goldens/families).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/model/check_tensors.h"
#include "engine/model/model.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/golden_file.h"

namespace sluice::testing {
namespace {

constexpr double kFamilyTolerance = 1e-5;  // relative to the largest magnitude

::testing::AssertionResult EqualsGolden(const std::vector<float>& got,
                                        const std::vector<float>& want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, not " << want.size();
  }
  double magnitude = 0, worst = 0;
  for (const float value : want) magnitude = std::max(magnitude, std::abs(double{value}));
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(double{got[i]} - double{want[i]});
    if (!(difference <= worst)) worst = difference;  // keeps a NaN
  }
  if (worst <= kFamilyTolerance * magnitude) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "off by " << worst << " of " << magnitude;
}

class FamilyGoldenTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string name = "families/" + std::get<0>(GetParam());
    auto model = LoadModel(name, 1, GoldenPath(name));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(CheckTensors(**model), absl::OkStatus());
    model_ = *std::move(model);
    golden_ = std::make_unique<GoldenFile>(GoldenPath(name + "/expected.safetensors"));
    const std::vector<int32_t> ids = golden_->Ints("input_ids");
    auto first = ids.begin();
    for (const int32_t length : golden_->Ints("lengths")) {
      sequences_.emplace_back(first, first + length);
      first += length;
    }
    runner_ = std::make_unique<Runner>(
        model_, CpuOptions{.threads = 2, .profile = std::get<1>(GetParam()), .poison = true},
        Bucket{static_cast<int32_t>(ids.size()), static_cast<int32_t>(sequences_.size())});
  }

  // Returns the scores of a sequence, or of its tokens one after another, by its states.
  std::vector<float> ScoresOf(const Answer& answer, bool by_token) const {
    const int64_t hidden = model_->config.hidden_size;
    const int64_t length = std::ssize(answer.states) / hidden;
    const Pooling pooling = model_->config.serving.classifier.pooling;
    const int64_t only = pooling == Pooling::kCls ? 0 : length - 1;
    std::vector<double> pooled(hidden), scores;
    std::vector<float> all;
    for (int64_t p = 0; p < length; ++p) {
      const bool mean = !by_token && pooling == Pooling::kMean;
      if (!by_token && !mean && p != only) continue;
      if (by_token) pooled.assign(hidden, 0);
      const double share = mean ? static_cast<double>(length) : 1;
      for (int64_t d = 0; d < hidden; ++d) pooled[d] += answer.states[p * hidden + d] / share;
      if (!by_token && p + 1 < length && mean) continue;
      model_->classifier->Score(pooled, &scores);
      all.insert(all.end(), scores.begin(), scores.end());
    }
    return all;
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<GoldenFile> golden_;
  std::vector<std::vector<int32_t>> sequences_;
  std::unique_ptr<Runner> runner_;
};

TEST_P(FamilyGoldenTest, StatesLogitsAndScoresEqualTheTransformersLibrary) {
  const bool by_token = golden_->Has("token_scores");
  std::vector<float> states, logits, scores;
  for (const Answer& answer : runner_->Run(sequences_)) {
    states.insert(states.end(), answer.states.begin(), answer.states.end());
    logits.insert(logits.end(), answer.logits.begin(), answer.logits.end());
    if (!model_->classifier) continue;
    const std::vector<float> own = ScoresOf(answer, by_token);
    scores.insert(scores.end(), own.begin(), own.end());
  }
  if (golden_->Has("states")) {
    EXPECT_TRUE(EqualsGolden(states, golden_->Floats("states")));
  }
  ASSERT_EQ(golden_->Has("logits"), model_->config.has_lm_head);
  if (golden_->Has("logits")) {
    EXPECT_TRUE(EqualsGolden(logits, golden_->Floats("logits")));
  }
  ASSERT_EQ(golden_->Has("scores") || by_token, model_->classifier.has_value());
  if (model_->classifier) {
    EXPECT_TRUE(EqualsGolden(scores, golden_->Floats(by_token ? "token_scores" : "scores")));
  }
}

// Computes all sequences of the golden in one step, then each separately in another bucket and on
// one thread.
TEST_P(FamilyGoldenTest, ASequenceHasTheSameBitsByItselfAndInABatch) {
  const std::vector<Answer> together = runner_->Run(sequences_);
  Runner other(model_, CpuOptions{.threads = 1, .profile = std::get<1>(GetParam()), .poison = true},
               Bucket{64, 2});
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const std::vector<Answer> alone = other.Run({sequences_[s]});
    EXPECT_EQ(alone[0].states, together[s].states) << "sequence " << s;
    EXPECT_EQ(alone[0].logits, together[s].logits) << "sequence " << s;
  }
}

// The cuts lie within windows and pages of keys, and before the last token.
TEST_P(FamilyGoldenTest, LogitsAreTheSameHoweverAPromptIsCutIntoSteps) {
  if (!model_->config.causal || !model_->config.has_lm_head) return;
  const std::vector<int32_t>& longest = sequences_.back();
  const auto length = static_cast<int32_t>(longest.size());
  ASSERT_GT(length, 18);
  const std::vector<float> whole = runner_->Run(sequences_).back().logits;
  for (const std::vector<int32_t>& cuts :
       {std::vector<int32_t>{0, 5, 18, length}, {0, length - 1, length}}) {
    EXPECT_EQ(LogitsOfCut(*runner_, model_->config, longest, cuts), whole)
        << "first cut at " << cuts[1];
  }
}

TEST_P(FamilyGoldenTest, GreedyTokensEqualTransformersGenerate) {
  if (!golden_->Has("greedy")) return;
  const std::vector<int32_t> greedy = golden_->Ints("greedy");
  const int64_t width = golden_->Shape("greedy")[1], steps = EffortOfTests().greedy_steps;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const auto first = greedy.begin() + s * width;
    EXPECT_EQ(runner_->Generate(sequences_[s], static_cast<int>(steps)),
              std::vector<int32_t>(first, first + steps))
        << "sequence " << s;
  }
}

// A layer with the head and the buckets of DeBERTa-v3. The lengths are around the border between
// buckets of one distance and of several distances, up to the longest.
class LongGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LongGoldenTest, StatesOfUpTo512TokensEqualTheTransformersLibrary) {
  const auto model = LoadModel("long", 1, GoldenPath("deberta_long"));
  ASSERT_TRUE(model.ok()) << model.status();
  const GoldenFile golden(GoldenPath("deberta_long/expected.safetensors"));
  const std::vector<int32_t> ids = golden.Ints("input_ids");
  std::vector<std::vector<int32_t>> sequences;
  auto first = ids.begin();
  for (const int32_t length : golden.Ints("lengths")) {
    sequences.emplace_back(first, first + length);
    first += length;
  }
  EXPECT_EQ(sequences.back().size(), 512u);
  Runner runner(*model, CpuOptions{.threads = 2, .profile = GetParam(), .poison = true},
                Bucket{static_cast<int32_t>(ids.size()), static_cast<int32_t>(sequences.size())});
  std::vector<float> states;
  for (const Answer& answer : runner.Run(sequences)) {
    states.insert(states.end(), answer.states.begin(), answer.states.end());
  }
  EXPECT_TRUE(EqualsGolden(states, golden.Floats("states")));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongGoldenTest);
INSTANTIATE_TEST_SUITE_P(Profiles, LongGoldenTest,
                         ::testing::ValuesIn(EffortOfTests().disentangled
                                                 ? F32Profiles()
                                                 : std::vector<std::string>()),
                         [](const auto& test) { return TestName(test.param); });

INSTANTIATE_TEST_SUITE_P(Families, FamilyGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(EffortOfTests().families),
                                            ::testing::ValuesIn(F32Profiles())),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) + "_" + std::get<1>(test.param));
                         });

}  // namespace
}  // namespace sluice::testing
