// Compares the backend with the committed answers of Hugging Face and of plain PyTorch code.
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

constexpr double kTolerance = 1e-4;  // relative to the largest magnitude
constexpr int kGreedySteps = 8;

// Returns the largest difference, relative to the largest expected magnitude.
double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0, magnitude = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double d = std::abs(double{actual[i]} - double{expected[i]});
    if (!(d <= difference)) difference = d;  // keeps a NaN
    magnitude = std::max(magnitude, std::abs(double{expected[i]}));
  }
  return magnitude > 0 ? difference / magnitude : difference;
}

class GoldenTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [directory, profile] = GetParam();
    auto model = LoadModel(directory, 1, GoldenPath(directory));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(CheckTensors(**model), absl::OkStatus());
    model_ = *std::move(model);
    expected_ = std::make_unique<GoldenFile>(GoldenPath(directory + "/expected.safetensors"));
    const std::vector<int32_t> ids = expected_->Ints("input_ids");
    const std::vector<int32_t> lengths = expected_->Ints("lengths");
    const bool placed = expected_->Has("position_offsets"), vectors = expected_->Has("inputs");
    const std::vector<int32_t> offsets =
        placed ? expected_->Ints("position_offsets") : std::vector<int32_t>(lengths.size());
    const std::vector<float> inputs = vectors ? expected_->Floats("inputs") : std::vector<float>();
    int64_t first = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int64_t past = first + lengths[s], width = model_->config.input_width;
      Prompt prompt{.tokens = {ids.begin() + first, ids.begin() + past},
                    .position_offset = offsets[s]};
      if (vectors) {
        prompt.inputs.assign(inputs.begin() + first * width, inputs.begin() + past * width);
      }
      prompts_.push_back(std::move(prompt));
      first = past;
    }
    largest_ = {static_cast<int32_t>(ids.size()), static_cast<int32_t>(prompts_.size())};
    runner_ = std::make_unique<Runner>(
        model_, CpuOptions{.threads = 2, .profile = profile, .poison = true}, largest_);
  }

  // Returns one field of all answers, one sequence after another, as the golden file stores it.
  std::vector<float> Joined(const std::vector<Answer>& answers,
                            std::vector<float> Answer::*field) const {
    std::vector<float> all;
    for (const Answer& answer : answers) {
      all.insert(all.end(), (answer.*field).begin(), (answer.*field).end());
    }
    return all;
  }

  // Returns `values` [layers, T, heads] rearranged to one [layers, length, heads] per sequence, one
  // after another.
  std::vector<float> BySequence(const std::vector<float>& values) const {
    const int64_t heads = model_->config.heads;
    const int64_t total = static_cast<int64_t>(values.size()) / model_->config.layers;
    std::vector<float> all;
    int64_t first = 0;
    for (const Prompt& prompt : prompts_) {
      const int64_t count = static_cast<int64_t>(prompt.tokens.size()) * heads;
      for (int64_t layer = 0; layer < model_->config.layers; ++layer) {
        const auto begin = values.begin() + layer * total + first;
        all.insert(all.end(), begin, begin + count);
      }
      first += count;
    }
    return all;
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<GoldenFile> expected_;
  std::vector<Prompt> prompts_;
  Bucket largest_;
  std::unique_ptr<Runner> runner_;
};

TEST_P(GoldenTest, StatesLogitsScoresAndDiagnosticsEqualTheGoldens) {
  const std::vector<Answer> answers = runner_->Run(prompts_, largest_);
  if (expected_->Has("states")) {
    EXPECT_LE(RelativeError(Joined(answers, &Answer::states), expected_->Floats("states")),
              kTolerance);
  }
  ASSERT_EQ(expected_->Has("logits"), model_->config.has_lm_head);
  if (!model_->config.has_lm_head) return;
  EXPECT_LE(RelativeError(Joined(answers, &Answer::logits), expected_->Floats("logits")),
            kTolerance);

  std::vector<float> logprobs;  // each token's, given the tokens before it
  for (size_t s = 0; s < answers.size(); ++s) {
    logprobs.push_back(0);
    for (size_t i = 0; i + 1 < prompts_[s].tokens.size(); ++i) {
      EXPECT_EQ(answers[s].next[i].token, prompts_[s].tokens[i + 1]);
      logprobs.push_back(answers[s].next[i].logprob);
    }
  }
  EXPECT_LE(RelativeError(logprobs, expected_->Floats("prompt_logprobs")), kTolerance);

  if (!expected_->Has("xsa_cos_sim")) return;
  EXPECT_LE(RelativeError(Joined(answers, &Answer::xsa_cos_sim),
                          BySequence(expected_->Floats("xsa_cos_sim"))),
            kTolerance);
  EXPECT_LE(RelativeError(Joined(answers, &Answer::xsa_proj_frac),
                          BySequence(expected_->Floats("xsa_proj_frac"))),
            kTolerance);
}

TEST_P(GoldenTest, GreedyTokensEqualTheGoldens) {
  if (!model_->config.has_lm_head) return;
  const std::vector<int32_t> greedy = expected_->Ints("greedy");
  const int steps = EffortOfTests().greedy_steps;
  for (size_t s = 0; s < prompts_.size(); ++s) {
    const std::vector<int32_t> expected(greedy.begin() + s * kGreedySteps,
                                        greedy.begin() + s * kGreedySteps + steps);
    if (expected[0] < 0) continue;  // the prompt leaves no room for generation
    EXPECT_EQ(runner_->Generate(prompts_[s].tokens, steps), expected) << "sequence " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenTest,
    ::testing::Combine(::testing::Values("llama_mha", "llama_gqa", "llama_mqa", "llama_headdim",
                                         "llama_bias", "llama_rope3", "llama_bf16", "llama_f16",
                                         "llama_sharded", "llama_newconfig", "sluice_pw_v",
                                         "sluice_pw_qkvo", "sluice_xsa", "sluice_xsa_squared_gate",
                                         "sluice_all", "gpt2_small", "gpt2_bare", "gpt2_headless",
                                         "bert_mlm", "bert_gamma", "bert_headless", "qwen2_gqa",
                                         "qwen2_tied", "sasrec_start", "sasrec_end",
                                         "sasrec_per_position", "encoder_dense_input",
                                         "encoder_position_input", "xsa_lm_small", "xsa_lm_deep"),
                       ::testing::ValuesIn(F32Profiles())),
    [](const auto& test) {
      return TestName(std::get<0>(test.param) + "_" + std::get<1>(test.param));
    });

}  // namespace
}  // namespace sluice::testing
