// Checks that a sequence's answer has the same bits in any batch and bucket, with any number of
// threads, while all memory that must not be read holds NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

constexpr Bucket kLargest{128, 8};

constexpr int64_t kPositions = 70;

// Returns a config with every op of a Llama, with plain or position-wise projections, and sums over
// many values.
ModelConfig WideConfig(bool position_wise) {
  ModelConfig config = TinyConfig(2);
  config.hidden_size = 64;
  config.intermediate_size = EffortOfTests().long_sum;
  config.qkv_bias = config.output_bias = true;
  if (position_wise) {
    config.position_wise.layers[static_cast<int>(Projection::kV)] = {true, true};
    config.position_wise.layers[static_cast<int>(Projection::kO)][1] = true;
    config.position_wise.bias = PositionWiseBias::kPositionFeature;
  }
  config.xsa.layers[1] = true;
  return config;
}

// Returns a config like the XSA language models of the parameter golf.
ModelConfig XsaLmConfig() {
  ModelConfig config = TinySluiceConfig(3);
  config.norm.weight = false;
  config.norm.embedding = config.norm.depth_scale = true;
  config.rope.dims = 4;
  config.rope.reversed = true;
  config.qk_norm = config.query_gain = true;
  config.activation = Activation::kSquaredRelu;
  config.gated_mlp = false;
  config.branch_scale = config.residual_mix = config.skip_weights = true;
  config.xsa.layers[2] = true;
  config.logit_soft_cap = 30;
  return config;
}

// Returns a config with learned positions and layer norms in the given order, like GPT-2, BERT, or
// SASRec with a position-wise feed-forward network.
ModelConfig ClassicConfig(NormOrder order) {
  ModelConfig config = TinySluiceConfig(2);
  config.norm = {.kind = NormKind::kLayer, .eps = 1e-5f, .bias = true, .order = order};
  config.positions = PositionKind::kLearned;
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.activation = Activation::kGeluTanh;
  if (order == NormOrder::kPost) {
    config.activation = Activation::kGelu;
    config.norm.embedding = true;
    config.causal = false;
  }
  if (order == NormOrder::kQuery) {
    config.activation = Activation::kRelu;
    config.embedding_scale = 5.5f;
    config.position_wise.layers[static_cast<int>(Projection::kUp)] = {true, true};
    config.position_wise.layers[static_cast<int>(Projection::kDown)][1] = true;
  }
  return config;
}

// Returns the config of an encoder of feature vectors, with an adapter, and with attention and MLP
// in parallel.
ModelConfig EncoderConfig() {
  ModelConfig config = ClassicConfig(NormOrder::kPre);
  config.positions = PositionKind::kNone;
  config.causal = false;
  config.parallel_blocks = true;
  config.token_types = 3;
  config.input = InputKind::kBoth;
  config.input_width = 21;
  config.input_adapter = InputAdapter::kPositionWise;
  config.position_wise.input_adapter = true;
  return config;
}

// Returns a config with windows in two of three layers, norms around the branches and all options
// that shape scores, like Gemma 3, or in both directions with a relative bias, like a T5 with
// windows.
ModelConfig WindowedConfig(bool causal) {
  ModelConfig config = TinySluiceConfig(3);
  config.causal = causal;
  config.norm.order = NormOrder::kAround;
  config.norm.unit_offset = true;
  config.window = 9;
  config.windowed = {true, false, true};
  config.local_rope = RopeConfig{.theta = 50};
  config.score_soft_cap = 1.5f;
  config.score_scale = 0.5f;
  config.qk_norm = true;
  config.qk_norm_weight = causal ? QkNormWeight::kHead : QkNormWeight::kAll;
  if (!causal) config.relative_bias = {.buckets = 8, .max_distance = 20};
  return config;
}

// Returns a config like HSTU's: weights of values by SiLU of scores, a gate after attention and no
// MLP.
ModelConfig HstuConfig() {
  ModelConfig config = ClassicConfig(NormOrder::kPre);
  config.attention_divisor = kPositions;
  config.attention_gate = config.qkv_silu = true;
  config.has_mlp = false;
  return config;
}

// Returns a config with disentangled attention whose long distances share rows, like DeBERTa's.
ModelConfig DisentangledKind() {
  ModelConfig config = ClassicConfig(NormOrder::kPost);
  config.kv_heads = config.heads;
  config.positions = PositionKind::kNone;
  config.causal = false;
  config.disentangled = {.span = 8, .max_distance = 40, .norm = true};
  return config;
}

// Returns a config with experts: in all layers, gated, in a causal model; or in the second layer,
// with a bias, in an encoder.
ModelConfig ExpertsKind(bool encoder) {
  ModelConfig config = encoder ? ClassicConfig(NormOrder::kPost) : WideConfig(false);
  if (encoder) config.intermediate_size = 40;
  config.family = TinySluiceConfig().family;
  config.architecture = TinySluiceConfig().architecture;
  config.experts = {
      .count = 6,
      .chosen = encoder ? 1 : 3,
      .width = encoder ? 40 : 200,
      .softmax = encoder ? kernels::RouteSoftmax::kOfAll : kernels::RouteSoftmax::kOfChosen,
      .bias = encoder,
      .layers = {!encoder, true}};
  return config;
}

std::vector<std::string> Kinds() {
  std::vector<std::string> kinds = {"dense",   "position_wise", "xsa_lm",           "sasrec",
                                    "encoder", "windowed",      "windowed_encoder", "hstu"};
  if (EffortOfTests().every_kind) kinds.insert(kinds.end(), {"gpt2", "bert"});
  for (const std::string& kind : EffortOfTests().quantized) kinds.push_back(kind);
  if (EffortOfTests().disentangled) {
    kinds.insert(kinds.end(), {"disentangled", "int8_disentangled"});
    if (EffortOfTests().every_kind) {
      kinds.insert(kinds.end(),
                   {"int4_disentangled", "kv_bf16_disentangled", "kv_int8_disentangled"});
    }
  }
  kinds.insert(kinds.end(), {"experts", "experts_encoder"});
  return kinds;
}

// "int8_" or "int4_" before a kind sets the precision of its projections, and int8 for its head if
// the backend supports it. "kv_bf16_" or "kv_int8_" sets the type of its KV pages.
ModelConfig ConfigOf(const std::string& kind) {
  for (const KvType type : {KvType::kBF16, KvType::kInt8}) {
    const std::string prefix = "kv_" + std::string(NameOf(type)) + "_";
    if (!kind.starts_with(prefix)) continue;
    ModelConfig config = ConfigOf(kind.substr(prefix.size()));
    config.kv_dtype = type;
    return config;
  }
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4}) {
    const std::string prefix = std::string(NameOf(quantization)) + "_";
    if (!kind.starts_with(prefix)) continue;
    ModelConfig config = ConfigOf(kind.substr(prefix.size()));
    config.quantization = {.projections = quantization, .head = EffortOfTests().quantized_head};
    return config;
  }
  ModelConfig config = kind == "xsa_lm"               ? XsaLmConfig()
                       : kind == "gpt2"               ? ClassicConfig(NormOrder::kPre)
                       : kind == "bert"               ? ClassicConfig(NormOrder::kPost)
                       : kind == "sasrec"             ? ClassicConfig(NormOrder::kQuery)
                       : kind == "encoder"            ? EncoderConfig()
                       : kind == "hstu"               ? HstuConfig()
                       : kind == "disentangled"       ? DisentangledKind()
                       : kind.starts_with("experts")  ? ExpertsKind(kind == "experts_encoder")
                       : kind.starts_with("windowed") ? WindowedConfig(kind == "windowed")
                                                      : WideConfig(kind == "position_wise");
  config.max_positions = kPositions;
  if (config.positions == PositionKind::kLearned) config.position_rows = kPositions;
  if (config.position_wise.Any()) config.position_wise.max_positions = kPositions;
  return config;
}

// Returns a prompt of tokens or, in half of the cases for a model that takes vectors, of vectors.
Prompt RandomPrompt(std::mt19937_64& random, int64_t length, const ModelConfig& config) {
  Prompt prompt{RandomTokens(random, length, config.vocab_size)};
  if (config.token_types > 0 && random() % 2 == 0) {
    prompt.types = RandomTokens(random, length, config.token_types);
  }
  if (config.input_width == 0 || random() % 2 == 0) return prompt;
  std::normal_distribution<float> normal;
  prompt.inputs.resize(length * config.input_width);
  for (float& value : prompt.inputs) value = normal(random);
  return prompt;
}

// Returns the smallest bucket that holds `tokens` tokens.
Bucket Choose(const std::vector<int32_t>& ladder, int32_t tokens) {
  const auto found = std::lower_bound(ladder.begin(), ladder.end(), tokens);
  return {found == ladder.end() ? kLargest.tokens : *found, kLargest.sequences};
}

// Returns random lengths of at most `max_length` that sum to `tokens`.
std::vector<int32_t> Split(std::mt19937_64& random, int32_t tokens, int32_t max_length) {
  std::vector<int32_t> lengths;
  while (tokens > 0) {
    const int32_t left = kLargest.sequences - static_cast<int32_t>(lengths.size());
    const int32_t least = std::max(1, tokens - (left - 1) * max_length);
    const int32_t most = std::min(tokens, max_length);
    lengths.push_back(left == 1 ? tokens
                                : least + static_cast<int32_t>(random() % (most - least + 1)));
    tokens -= lengths.back();
  }
  return lengths;
}

using Param = std::tuple<std::string, std::string>;  // profile, kind

class InvarianceTest : public ::testing::TestWithParam<Param> {
 protected:
  std::unique_ptr<Runner> MakeRunner(int threads, const Bucket& largest = kLargest) const {
    return std::make_unique<Runner>(
        model_, CpuOptions{.threads = threads, .profile = std::get<0>(GetParam()), .poison = true},
        largest);
  }

  // Returns a runner for each number of threads to try.
  std::vector<std::unique_ptr<Runner>> MakeRunners(const Bucket& largest = kLargest) const {
    std::vector<std::unique_ptr<Runner>> runners;
    for (int threads : EffortOfTests().threads) runners.push_back(MakeRunner(threads, largest));
    return runners;
  }

  std::shared_ptr<const Model> model_ =
      RandomModel(ConfigOf(std::get<1>(GetParam())), 17, kernels::DType::kBF16);
};

TEST_P(InvarianceTest, AnswersAreTheSameInAnyBatchBucketAndNumberOfThreads) {
  const uint64_t seed = 4242;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto alone = MakeRunner(1);
  const auto together = MakeRunners();
  const kernels::SampleParams params{.temperature = 0.9f, .top_p = 0.95f, .seed = 5};
  const std::vector<int32_t> ladder = EffortOfTests().ladder;
  for (int32_t boundary : ladder) {
    for (int32_t tokens : {boundary - 1, boundary, boundary + 1}) {
      if (tokens > kLargest.tokens) continue;
      SCOPED_TRACE(tokens);
      std::vector<Prompt> prompts;
      for (int32_t length : Split(random, tokens, kPositions)) {
        prompts.push_back(RandomPrompt(random, length, model_->config));
      }
      std::vector<Answer> expected;
      for (const Prompt& prompt : prompts) {
        const auto length = static_cast<int32_t>(prompt.tokens.size());
        expected.push_back(alone->Run(std::vector<Prompt>{prompt}, {length, 1}, params)[0]);
        ASSERT_TRUE(std::isfinite(
            std::accumulate(expected.back().logits.begin(), expected.back().logits.end(), 0.0)));
      }
      for (const auto& runner : together) {
        const std::vector<Answer> answers = runner->Run(prompts, Choose(ladder, tokens), params);
        for (size_t s = 0; s < prompts.size(); ++s) {
          ASSERT_TRUE(SameBits(answers[s], expected[s])) << "sequence " << s;
        }
      }
    }
  }
}

// Prompts have one to three tokens, so that a position has about as many rows as there are prompts,
// and every possible remainder of a tile of rows occurs.
TEST_P(InvarianceTest, AnswersAreTheSameInBatchesOfAnySize) {
  constexpr int32_t kLongest = 3;
  const std::vector<int32_t> counts = EffortOfTests().sequences;
  const int32_t most = counts.back();
  const uint64_t seed = 77;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const Bucket largest{kLongest * most, most};
  const auto runners = MakeRunners(largest);
  const auto alone_runner = MakeRunner(1, largest);
  std::vector<Prompt> prompts;
  std::vector<Answer> alone;
  for (int i = 0; i < 9; ++i) {
    prompts.push_back(RandomPrompt(random, 1 + i % kLongest, model_->config));
    alone.push_back(alone_runner->Run(std::vector<Prompt>{prompts.back()}, largest)[0]);
  }
  for (int32_t count : counts) {
    SCOPED_TRACE(count);
    std::vector<size_t> chosen;
    std::vector<Prompt> batch;
    for (int32_t i = 0; i < count; ++i) {
      chosen.push_back(random() % prompts.size());
      batch.push_back(prompts[chosen.back()]);
    }
    for (const auto& runner : runners) {
      const std::vector<Answer> answers = runner->Run(batch, largest);
      for (size_t s = 0; s < batch.size(); ++s) {
        ASSERT_TRUE(SameBits(answers[s], alone[chosen[s]])) << "sequence " << s;
      }
    }
  }
}

TEST_P(InvarianceTest, AnswersAreTheSameInLargerBuckets) {
  std::mt19937_64 random(3);
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t length : {5, 1, 9}) {
    sequences.push_back(RandomTokens(random, length, model_->config.vocab_size));
  }
  const auto runner = MakeRunner(2);
  const std::vector<Answer> expected = runner->Run(sequences);
  for (int32_t tokens : EffortOfTests().ladder) {
    const std::vector<Answer> answers = runner->Run(sequences, {tokens, kLargest.sequences});
    for (size_t s = 0; s < sequences.size(); ++s) {
      EXPECT_TRUE(SameBits(answers[s], expected[s])) << tokens;
    }
  }
}

// A prompt that is cut into steps at any place gives the bits of the whole prompt. Before each
// step, all memory that no earlier step wrote is poisoned.
TEST_P(InvarianceTest, AnswersAreTheSameHoweverAPromptIsCutIntoSteps) {
  if (!model_->config.causal) return;  // its prompts are never cut
  std::mt19937_64 random(8);
  const std::vector<int32_t> tokens = RandomTokens(random, 41, model_->config.vocab_size);
  const auto runner = MakeRunner(2);
  const Answer whole = runner->Run({tokens})[0];
  for (const std::vector<int32_t>& cuts : {std::vector<int32_t>{0, 16, 32, 41},
                                           {0, 1, 17, 40, 41},
                                           {0, 40, 41},
                                           {0, 15, 16, 33, 41}}) {
    EXPECT_EQ(LogitsOfCut(*runner, model_->config, tokens, cuts), whole.logits)
        << "first cut at " << cuts[1];
  }
}

// Some steps sample more rows than one run of a head computes.
TEST_P(InvarianceTest, AnswersAreTheSameWhenStepsOverlap) {
  const uint64_t seed = 31;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::vector<Prompt>> batches;
  std::vector<std::vector<Answer>> expected;
  const Bucket bucket{36, 2};
  const auto runner = MakeRunner(2, bucket);
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{3}, {33, 1}, {2, 4}, {1}}) {
    batches.emplace_back();
    for (int64_t length : lengths) {
      batches.back().push_back(RandomPrompt(random, length, model_->config));
    }
    expected.push_back(runner->Run(batches.back(), bucket));
  }
  const std::vector<std::vector<Answer>> answers = runner->RunOverlapping(batches, bucket);
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t b = 0; b < batches.size(); ++b) {
    for (size_t s = 0; s < batches[b].size(); ++s) {
      EXPECT_TRUE(SameBits(answers[b][s], expected[b][s])) << "batch " << b << ", sequence " << s;
    }
  }
}

using RealSizeParam = std::tuple<std::string, Effort::RealSize>;  // profile, size

class RealSizesInvarianceTest : public ::testing::TestWithParam<RealSizeParam> {
 protected:
  // All profiles share a model, which takes long to make.
  static std::shared_ptr<const Model> ModelOf(const Effort::RealSize& size) {
    static std::map<int64_t, std::shared_ptr<const Model>> models;  // by head_dim
    std::shared_ptr<const Model>& model = models[size.head_dim];
    if (model != nullptr) return model;
    ModelConfig config = TinyConfig(1);
    config.head_dim = size.head_dim;
    config.heads = size.heads;
    config.kv_heads = size.kv_heads;
    config.hidden_size = size.hidden;
    config.intermediate_size = size.intermediate;
    config.vocab_size = size.vocab;
    config.max_positions = size.length;
    config.xsa.layers[0] = true;
    model = RandomModel(config, 29, kernels::DType::kBF16);
    return model;
  }
};

TEST_P(RealSizesInvarianceTest, AnswersAreTheSameSeparatelyTogetherAndInSteps) {
  const auto& [profile, size] = GetParam();
  const uint64_t seed = 55;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::shared_ptr<const Model> model = ModelOf(size);
  std::vector<std::vector<int32_t>> prompts;
  int32_t tokens = 0;
  for (int32_t length : {2, size.length, 1, size.length / 2}) {
    prompts.push_back(RandomTokens(random, length, size.vocab));
    tokens += length;
  }
  const Bucket bucket{tokens, static_cast<int32_t>(prompts.size())};
  const int threads = EffortOfTests().threads.back();
  Runner runner(model, {.threads = threads, .profile = profile, .poison = true}, bucket);
  const kernels::SampleParams params{.temperature = 0.9f, .seed = 6};
  const std::vector<Answer> together = runner.Run(prompts, bucket, params);
  for (size_t s = 0; s < prompts.size(); ++s) {
    const Bucket own{static_cast<int32_t>(prompts[s].size()), 1};
    const Answer alone = runner.Run({prompts[s]}, own, params)[0];
    ASSERT_TRUE(std::isfinite(alone.logits.back()));
    EXPECT_TRUE(SameBits(together[s], alone)) << "sequence " << s;
  }
  const std::vector<int32_t> cuts = {0, size.length / 3, size.length - 1, size.length};
  EXPECT_TRUE(LogitsOfCut(runner, model->config, prompts[1], cuts) == together[1].logits);
}

INSTANTIATE_TEST_SUITE_P(Profiles, RealSizesInvarianceTest,
                         ::testing::Combine(::testing::ValuesIn(SupportedProfiles()),
                                            ::testing::ValuesIn(EffortOfTests().real_sizes)),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) + "_head_dim_" +
                                           std::to_string(std::get<1>(test.param).head_dim));
                         });

INSTANTIATE_TEST_SUITE_P(Profiles, InvarianceTest,
                         ::testing::Combine(::testing::ValuesIn(SupportedProfiles()),
                                            ::testing::ValuesIn(Kinds())),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) + "_" + std::get<1>(test.param));
                         });

}  // namespace
}  // namespace sluice::testing
