// Runs whole models whose dense layers are computed by the emulator's library: with a workspace,
// with activations that it applies, and by a table.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

constexpr Bucket kWhole{120, 8};

struct Case {
  std::string profile;
  Activation activation;
  bool gated = false;
  bool experts = false;  // in the second layer
};

ModelConfig ModelOf(const Case& of) {
  ModelConfig config = TinySluiceConfig(2);
  config.activation = of.activation;
  config.gated_mlp = of.gated;
  if (of.experts) config.experts = {.count = 5, .chosen = 3, .width = 24, .layers = {false, true}};
  return config;
}

class DenseModelTest : public ::testing::TestWithParam<Case> {
 protected:
  Runner MakeRunner(const std::string& profile, const Bucket& largest) const {
    return Runner(model_, {.threads = 1, .profile = profile, .poison = true}, largest);
  }
  std::vector<std::vector<int32_t>> Sequences(const std::vector<int64_t>& lengths) {
    std::vector<std::vector<int32_t>> sequences;
    for (const int64_t length : lengths) {
      sequences.push_back(RandomTokens(random_, length, model_->config.vocab_size));
    }
    return sequences;
  }

  std::mt19937_64 random_{11};
  const std::shared_ptr<const Model> model_ =
      RandomModel(ModelOf(GetParam()), 17, kernels::DType::kBF16);
};

// The batch has more rows than a run of the head takes, so that each row also has another place in
// the head.
TEST_P(DenseModelTest, AnswersAreTheSameInEveryBatchAndBucket) {
  Runner alone = MakeRunner(GetParam().profile, kWhole);
  Runner together = MakeRunner(GetParam().profile, kWhole);
  const auto sequences = Sequences({5, 40, 1, 17});
  std::vector<Answer> expected;
  for (const auto& sequence : sequences) {
    const auto length = static_cast<int32_t>(sequence.size());
    expected.push_back(alone.Run({sequence}, {length, 1})[0]);
    for (const float logit : expected.back().logits) ASSERT_TRUE(std::isfinite(logit));
  }
  for (const int32_t tokens : {63, 64, 65, 120}) {
    const std::vector<Answer> answers = together.Run(sequences, {tokens, kWhole.sequences});
    for (size_t s = 0; s < sequences.size(); ++s) {
      EXPECT_TRUE(SameBits(answers[s], expected[s])) << tokens << " tokens, sequence " << s;
    }
  }
}

TEST_P(DenseModelTest, AnswersAreCloseToOurKernels) {
  const std::string own = GetParam().profile.substr(0, GetParam().profile.rfind('-'));
  const auto sequences = Sequences({40, 3});
  const double most = own == "cuda-simt-f32" ? 1e-4 : 0.05;
  Runner ours = MakeRunner(own, kWhole), library = MakeRunner(GetParam().profile, kWhole);
  const std::vector<Answer> expected = ours.Run(sequences), answers = library.Run(sequences);
  bool differ = false;
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (size_t i = 0; i < expected[s].logits.size(); ++i) {
      ASSERT_NEAR(answers[s].logits[i], expected[s].logits[i], most) << s << ", " << i;
      differ |= answers[s].logits[i] != expected[s].logits[i];
    }
  }
  EXPECT_TRUE(differ) << "whether the library was there at all";
}

INSTANTIATE_TEST_SUITE_P(
    Profiles, DenseModelTest,
    ::testing::Values(Case{"cuda-simt-f32-library", Activation::kRelu},
                      Case{"cuda-simt-bf16-library", Activation::kRelu},
                      Case{"cuda-simt-bf16-library", Activation::kGeluTanh},
                      Case{"cuda-simt-f32-library", Activation::kSilu, true},
                      Case{"cuda-simt-f32-library", Activation::kGelu, true, true},
                      Case{"cuda-simt-f32-table", Activation::kRelu}),
    [](const auto& named) {
      return TestName(named.param.profile + "_" +
                      std::to_string(static_cast<int>(named.param.activation)));
    });

}  // namespace
}  // namespace sluice::testing
