// Compares the backend with the reference model in double, on random configs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/model/families/family.h"
#include "engine/model/model.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/golden_file.h"
#include "tests/support/reference_model.h"

namespace sluice::testing {
namespace {

// Draws layers with experts, which have no position-wise MLP.
void DrawExperts(std::mt19937_64& random, ModelConfig& config) {
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  ExpertsConfig& experts = config.experts;
  experts.count = 1 + below(9);
  experts.chosen = 1 + below(experts.count);
  experts.width = 1 + below(70);
  experts.softmax = static_cast<kernels::RouteSoftmax>(below(2));
  experts.bias = below(2) == 0;
  experts.layers.assign(config.layers, true);
  experts.layers[below(config.layers)] = below(2) == 0;
  for (const Projection p : {Projection::kGate, Projection::kUp, Projection::kDown}) {
    std::vector<bool>& flags = config.position_wise.layers[static_cast<int>(p)];
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      if (experts.layers[layer]) flags[layer] = false;
    }
  }
}

// Draws the fields that only a Sluice model's config supports.
void DrawExplicit(std::mt19937_64& random, ModelConfig& config) {
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  const auto flip = [&] { return below(2) == 0; };
  const auto draw = [&]<typename E>(E& value) {
    value = static_cast<E>(below(CountEnumerators<E>()));
  };
  config.architecture = "SluiceForCausalLM";
  config.family = &kSluiceFamily;
  draw(config.norm.kind);
  config.norm.weight = flip();
  config.norm.bias = config.norm.kind == NormKind::kLayer && flip();
  draw(config.norm.order);
  config.norm.embedding = flip();
  config.norm.final = below(4) > 0;
  config.norm.depth_scale = flip();
  draw(config.positions);
  config.rope.dims = 2 + below(config.head_dim / 2) * 2;
  config.head_dim += below(2);
  config.rope.reversed = flip();
  if (config.positions == PositionKind::kLearned) {
    config.position_offset = below(3);
    config.position_rows = config.max_positions + config.position_offset;
  }
  config.causal = below(3) > 0;
  config.qk_norm = flip();
  draw(config.qk_norm_weight);
  config.query_gain = flip();
  const bool rotated = config.qk_norm && config.qk_norm_weight == QkNormWeight::kRotated;
  config.norm.unit_offset = config.norm.weight && !rotated && flip();
  if (flip()) {
    config.window = 1 + below(20);
    config.windowed.assign(config.layers, false);
    config.windowed[below(config.layers)] = true;
    if (flip()) config.local_rope = RopeConfig{.theta = 30.0, .reversed = config.rope.reversed};
  }
  if (flip()) config.unrotated = std::vector<bool>(config.layers, flip());
  config.score_scale = flip() ? 0.0f : 0.5f;
  config.score_soft_cap = flip() ? 0.0f : 2.0f;
  if (!config.causal && flip()) config.relative_bias = {.buckets = 8, .max_distance = 20};
  if (EffortOfTests().disentangled && !config.causal && config.kv_heads == config.heads && flip()) {
    config.disentangled = {.span = 4 + below(12),
                           .max_distance = below(2) * (20 + below(30)),
                           .shared = flip(),
                           .norm = flip()};
    draw(config.disentangled.terms);
  }
  const auto by_position = [&](Projection p) {
    const std::vector<bool>& layers = config.position_wise.layers[static_cast<int>(p)];
    return std::ranges::find(layers, true) != layers.end();
  };
  if (config.positions == PositionKind::kRope && config.head_dim % 2 == 0 && !rotated &&
      config.disentangled.span == 0 && !by_position(Projection::kQ) &&
      !by_position(Projection::kK) && flip()) {
    config.rope.dims = config.head_dim;
    config.rope.neighbours = true;
  }
  config.down_bias = flip();
  draw(config.activation);
  config.gated_mlp = flip();
  if (!config.gated_mlp) {
    config.position_wise.layers[static_cast<int>(Projection::kGate)].assign(config.layers, false);
  }
  config.output_bias = flip();
  config.parallel_blocks = config.norm.order == NormOrder::kPre && flip();
  config.parallel_norms = config.parallel_blocks && flip();
  config.norm.first = config.norm.order != NormOrder::kPre || config.parallel_blocks || flip();
  config.branch_scale = flip();
  config.residual_mix = flip();
  config.skip_weights = flip();
  config.embedding_scale = flip() ? 1.0f : 2.5f;
  config.attention_gate = config.norm.order == NormOrder::kPre && below(3) == 0;
  config.qkv_silu = below(3) == 0;
  if (!config.xsa.Any() && config.disentangled.span == 0 && flip()) {
    config.attention_divisor = 1.0 + below(30);
  }
  config.has_mlp = config.parallel_blocks || below(4) > 0;
  config.token_types = below(2) * (1 + below(4));
  if (config.has_mlp && flip()) DrawExperts(random, config);
  draw(config.input);
  if (config.input == InputKind::kIds) return;
  config.input_adapter = static_cast<InputAdapter>(below(config.position_wise.Any() ? 3 : 2));
  config.position_wise.input_adapter = config.input_adapter == InputAdapter::kPositionWise;
  config.input_adapter_bias = config.input_adapter == InputAdapter::kDense && flip();
  config.input_width =
      config.input_adapter == InputAdapter::kNone ? config.hidden_size : 1 + below(50);
}

// Returns a random combination of the options of a config, with odd sizes.
ModelConfig RandomConfig(std::mt19937_64& random) {
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  ModelConfig config = TinyConfig(1 + below(3));
  config.vocab_size = 2 + below(90);
  config.hidden_size = 8 + below(70);  // in smaller rows, norms near 0 magnify rounding
  config.intermediate_size = 1 + below(90);
  config.kv_heads = 1 + below(3);
  config.heads = config.kv_heads * (1 + below(4));
  config.head_dim = 2 * (1 + below(20));
  config.max_positions = 33 + below(30);
  config.norm.eps = 1e-5f;
  config.tie_word_embeddings = below(2) == 0;
  config.qkv_bias = config.output_bias = below(2) == 0;
  config.mlp_bias = below(2) == 0;
  if (below(2) == 0) config.rope.llama3 = {8.0, 1.0, 4.0, 16};
  if (below(2) == 0) {
    for (auto& flags : config.position_wise.layers) flags[below(config.layers)] = below(2) == 0;
    config.position_wise.max_positions = 33 + below(10);
    config.position_wise.bias = static_cast<PositionWiseBias>(below(3));
  }
  if (below(3) > 0) {
    config.xsa.layers[below(config.layers)] = true;
    config.xsa.form = static_cast<XsaConfig::Form>(below(2));
    config.xsa.gate = below(2) == 0;
  }
  if (below(3) > 0) DrawExplicit(random, config);
  return config;
}

std::vector<Prompt> RandomPrompts(std::mt19937_64& random, const ModelConfig& config) {
  std::vector<Prompt> prompts;
  std::normal_distribution<float> normal;
  const int64_t longest =
      std::min(config.max_positions, config.position_wise.Any() ? config.position_wise.max_positions
                                                                : config.max_positions);
  for (const int64_t length : {int64_t{1}, int64_t{17}, int64_t{33}}) {
    Prompt prompt{RandomTokens(random, length, config.vocab_size)};
    if (random() % 2 == 0) prompt.position_offset = static_cast<int32_t>(longest - length);
    if (config.input == InputKind::kEmbeds ||
        (config.input == InputKind::kBoth && random() % 2 == 0)) {
      prompt.inputs.resize(length * config.input_width);
      for (float& value : prompt.inputs) value = normal(random);
    }
    if (config.token_types > 0 && random() % 4 > 0) {
      prompt.types = RandomTokens(random, length, config.token_types);
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

ReferenceAnswer ReferenceOf(const Model& model, const Prompt& prompt) {
  std::vector<int32_t> tokens = prompt.tokens;
  if (!prompt.inputs.empty()) tokens.assign(tokens.size(), -1);
  return RunReference(model, tokens, prompt.position_offset, prompt.inputs, prompt.types);
}

::testing::AssertionResult Near(const std::vector<float>& actual,
                                const std::vector<double>& expected, double tolerance) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  }
  double magnitude = 1;
  for (double value : expected) magnitude = std::max(magnitude, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= tolerance * magnitude) continue;
    return ::testing::AssertionFailure()
           << "value " << i << " is " << actual[i] << ", must be " << expected[i];
  }
  return ::testing::AssertionSuccess();
}

class ReferenceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceTest, RandomModelsAgreeWithTheReference) {
  for (int i = 0; i < EffortOfTests().random_models; ++i) {
    const uint64_t seed = 100 + i;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const ModelConfig config = RandomConfig(random);
    SCOPED_TRACE(ConfigJson(config));
    const auto dtype = static_cast<kernels::DType>(seed % 3);
    const auto model = RandomModel(config, seed, dtype);
    const std::vector<Prompt> prompts = RandomPrompts(random, config);
    Runner runner(model, {.threads = 2, .profile = GetParam(), .poison = true}, {51, 3});
    const std::vector<Answer> answers = runner.Run(prompts, {51, 3});
    for (size_t s = 0; s < prompts.size(); ++s) {
      const ReferenceAnswer expected = ReferenceOf(*model, prompts[s]);
      ASSERT_TRUE(Near(answers[s].states, expected.output, 2e-5));
      ASSERT_TRUE(Near(answers[s].logits, expected.logits, 2e-5));
      ASSERT_TRUE(Near(answers[s].xsa_cos_sim, expected.xsa_cos_sim, 2e-5));
      ASSERT_TRUE(Near(answers[s].xsa_proj_frac, expected.xsa_proj_frac, 1e-4));
    }
  }
}

// Padding tokens of a row do not count for the positions of the others. (MPNet adds no position to
// its relative bias, so its distances count every token.)
TEST_P(ReferenceTest, PaddingTokensOfARowAgreeWithTheReference) {
  for (const std::string name :
       {"roberta_1", "roberta_3", "mpnet_1", "xlm_roberta_2", "camembert_2"}) {
    SCOPED_TRACE(name);
    const auto model = LoadModel(name, 1, GoldenPath("families/" + name));
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelConfig& config = (*model)->config;
    ASSERT_GE(config.padding_token, 0);
    std::mt19937_64 random(7);
    std::vector<Prompt> prompts;
    for (const int64_t length : {int64_t{1}, int64_t{9}, int64_t{30}}) {
      Prompt prompt{RandomTokens(random, length, config.vocab_size)};
      for (int32_t& token : prompt.tokens) {
        if (random() % 3 == 0) token = config.padding_token;
      }
      prompts.push_back(std::move(prompt));
    }
    Runner runner(*model, {.threads = 2, .profile = GetParam(), .poison = true}, {40, 3});
    const std::vector<Answer> answers = runner.Run(prompts, {40, 3});
    for (size_t s = 0; s < prompts.size(); ++s) {
      EXPECT_TRUE(Near(answers[s].states, ReferenceOf(**model, prompts[s]).output, 2e-5));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, ReferenceTest, ::testing::ValuesIn(F32Profiles()),
                         [](const auto& test) { return TestName(test.param); });

}  // namespace
}  // namespace sluice::testing
