#include "engine/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/check_tensors.h"
#include "engine/model/safetensors.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/profile.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

TEST(MakeCpuBackendTest, ChecksItsOptions) {
  EXPECT_EQ(MakeCpuBackend({.threads = -1}).status().message(),
            "cpu.threads is -1, must be in [0, 1024]");
  EXPECT_FALSE(MakeCpuBackend({.threads = 1025}).ok());
  EXPECT_EQ(MakeCpuBackend({.profile = "cpu-fast"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const std::string& profile : SupportedProfiles()) {
    const auto backend = MakeCpuBackend({.threads = 1, .profile = profile});
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ((*backend)->info().profile, profile);
    EXPECT_EQ((*backend)->info().device, "cpu");
    EXPECT_EQ((*backend)->info().page_tokens, kernels::kPageTokens);
  }
}

// Such a model uses the kernels and has the bits of the f32 profile.
TEST(CpuModelProfile, ProfileOfAModelWithoutBF16OmitsBF16) {
  for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kBF16}) {
    const auto model = RandomModel(TinyConfig(1), 1, dtype);
    for (const std::string& profile : SupportedProfiles()) {
      const bool widens = dtype == kernels::DType::kF32 && profile.ends_with("-bf16");
      Runner runner(model, {.threads = 1, .profile = profile}, {4, 1});
      EXPECT_EQ(runner.executable().profile(), widens ? "cpu-avx512-f32" : profile);
    }
  }
}

TEST(CpuModelProfile, TheHostComputesUnderTheForcedProfile) {
  const auto model = RandomModel(TinyConfig(1), 1);
  for (const kernels::Profile profile : kernels::kProfiles) {
    if (!kernels::ProfileSupported(profile)) continue;
    const std::string name(kernels::ProfileName(profile));
    Runner runner(model, {.threads = 1, .profile = name}, {4, 1});
    EXPECT_EQ(runner.executable().host_profile(), profile) << name;
  }
}

// Returns the error of loading a model. Its weights were written for the config `written`; its
// config.json was replaced by the one of `loaded`.
std::string LoadError(const ModelConfig& written, const ModelConfig& loaded) {
  const TemporaryDirectory directory;
  WriteModel(written, 1, kernels::DType::kF32, directory.path());
  WriteTestFile(directory.File("config.json"), ConfigJson(loaded));
  auto model = LoadModel("m", 1, directory.path());
  EXPECT_TRUE(model.ok()) << model.status();
  const auto backend = MakeCpuBackend({.threads = 1});
  const auto executable = (*backend)->Load(*model);
  EXPECT_FALSE(executable.ok());
  EXPECT_EQ(CheckTensors(**model), executable.status());
  return std::string(executable.status().message());
}

struct CpuLoadRow {
  const char* name;
  std::function<void(ModelConfig&)> change;  // edits the config once the weights are written
  const char* error;
};
class CpuLoadTable : public TableTest<CpuLoadRow> {};

TEST_P(CpuLoadTable, TheErrorNamesTheTensor) {
  ModelConfig loaded = TinyConfig(1);
  row().change(loaded);
  EXPECT_EQ(LoadError(TinyConfig(1), loaded), row().error);
}

const CpuLoadRow kCpuLoadRows[] = {
    {.name = "AVocabularyThatDiffersIsRefused",
     .change = [](ModelConfig& c) { c.vocab_size = 62; },
     .error = "tensor model.embed_tokens.weight has shape [61, 32], must be [62, 32]"},
    {.name = "AnMlpWidthThatDiffersIsRefused",
     .change = [](ModelConfig& c) { c.intermediate_size = 48; },
     .error = "tensor model.layers.0.mlp.gate_proj.weight has shape [40, 32], must be [48, 32]"},
    {.name = "KvHeadsThatDifferAreRefused",
     .change = [](ModelConfig& c) { c.kv_heads = 4; },
     .error = "tensor model.layers.0.self_attn.k_proj.weight has shape [16, 32], must be [32, 32]"},
    {.name = "MissingBiasesAreRefused",
     .change = [](ModelConfig& c) { c.qkv_bias = c.output_bias = true; },
     .error = "tensor model.layers.0.self_attn.q_proj.bias is missing"},
    {.name = "AMissingXsaGateIsRefused",
     .change =
         [](ModelConfig& c) {
           c.xsa.layers[0] = true;
           c.xsa.gate = true;
         },
     .error = "tensor model.layers.0.self_attn.xsa_alpha is missing"},
    {.name = "AMissingPositionWiseWeightIsRefused",
     .change =
         [](ModelConfig& c) {
           c.position_wise.layers[0][0] = true;
           c.position_wise.max_positions = 8;
         },
     .error = "tensor model.layers.0.self_attn.q_proj.position_weight is missing"},
    {.name = "AnAdditionalLayerIsRefused",
     .change =
         [](ModelConfig& c) {
           c.layers = 2;
           c.xsa.layers.resize(2);
           for (auto& flags : c.position_wise.layers) flags.resize(2);
         },
     .error = "tensor model.layers.1.input_layernorm.weight is missing"},
};
SLUICE_TABLE(CpuLoadTable, kCpuLoadRows);

TEST(CpuLoadTest, AModelWithTiedWeightsNeedsNoTensorForTheHead) {
  ModelConfig tied = TinyConfig(1);
  tied.tie_word_embeddings = true;
  EXPECT_EQ(LoadError(tied, TinyConfig(1)), "tensor lm_head.weight is missing");
}

class CpuModelTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Model> model_ = RandomModel(TinyConfig(2), 3);
  std::unique_ptr<Runner> runner_ =
      std::make_unique<Runner>(model_, CpuOptions{.threads = 2, .poison = true}, Bucket{128, 4});
};

TEST_F(CpuModelTest, ReportsTheBytesOfItsWeightsAndPages) {
  const ExecutableModel& executable = runner_->executable();
  // All weights are kept in f32; packing rounds their number up to whole panels.
  int64_t elements = 0;
  for (const auto& [name, tensor] : model_->checkpoint.tensors()) elements += tensor.elements();
  EXPECT_GE(executable.weight_bytes(), elements * 4);
  EXPECT_LE(executable.weight_bytes(), elements * 32);

  const Slot& slot = runner_->slot();
  const ModelConfig& config = model_->config;
  const int64_t kv_bytes = int64_t{2} * config.layers * slot.pages() * kernels::kPageTokens *
                           config.kv_heads * config.head_dim * 4;
  const int64_t row_floats = 2 * config.hidden_size +
                             (config.heads + 2 * config.kv_heads) * config.head_dim +
                             2 * config.intermediate_size;
  EXPECT_EQ(executable.page_bytes() * slot.pages(), kv_bytes);
  EXPECT_EQ(slot.memory().kv, kv_bytes);
  EXPECT_GE(slot.memory().activation_room, 128 * row_floats * 4);
  EXPECT_GE(slot.memory().activation_room, executable.activation_bytes({128, 4}));
  const auto smaller = executable.CreateSlot({64, 4}, slot.pages());
  ASSERT_TRUE(smaller.ok());
  EXPECT_LE((*smaller)->memory().activation_room,
            slot.memory().activation_room - 64 * row_floats * 4);
  const auto plan = executable.Prepare({64, 4});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->bucket(), (Bucket{64, 4}));
  EXPECT_GT((*plan)->memory_bytes(), 0);
}

TEST_F(CpuModelTest, RefusesBucketsOutsideTheRange) {
  for (const Bucket& bucket : {Bucket{0, 1}, Bucket{1, 0}, Bucket{-1, 1}, Bucket{(1 << 20) + 1, 1},
                               Bucket{1, (1 << 16) + 1}}) {
    EXPECT_EQ(runner_->executable().Prepare(bucket).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(runner_->executable().CreateSlot(bucket, 1).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(runner_->executable().Prepare({0, 3}).status().message(),
            "bucket of 0 tokens and 3 sequences, must be in [1, 1048576] and [1, 65536]");
}

TEST_F(CpuModelTest, RowOrderFollowsThePositionWiseLayers) {
  EXPECT_EQ(runner_->executable().row_order(), RowOrder::kSequenceMajor);
  ModelConfig config = TinyConfig(1);
  config.position_wise.layers[0][0] = true;
  config.position_wise.max_positions = 8;
  const Runner position_wise(RandomModel(config, 3), {.threads = 1}, {8, 1});
  EXPECT_EQ(position_wise.executable().row_order(), RowOrder::kPositionMajor);
}

// Runs one step of one sequence and samples the rows that `sampled` names.
void RunRows(Runner& runner, const std::vector<int32_t>& tokens, std::vector<SampledRow> sampled) {
  const ExecutableModel& executable = runner.executable();
  const std::vector<int32_t> pages = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto length = static_cast<int32_t>(tokens.size());
  StepBatch batch(128, 1, 128, kernels::kPageTokens);
  const StepSequence step{0, length, tokens.data(), pages.data()};
  batch.Assign({&step, 1}, sampled, executable.row_order());
  const auto plan = executable.Prepare({128, 1});
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(executable.Replay(**plan, runner.slot(), batch).ok());
}

// Returns the log-softmax of one row of logits, computed in double.
std::vector<double> LogProbabilities(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - max);
  std::vector<double> all;
  for (float logit : logits) all.push_back(logit - max - std::log(sum));
  return all;
}

TEST_F(CpuModelTest, SampledRowsAreScoredDrawnAndGivenCandidates) {
  std::mt19937_64 random(11);
  const std::vector<int32_t> tokens = RandomTokens(random, 40, model_->config.vocab_size);
  constexpr int kTop = 5;
  std::vector<float> logits(model_->config.vocab_size);
  kernels::SampleResult scored, greedy, again;
  int32_t ids[2][kTop];
  float logprobs[2][kTop];
  RunRows(*runner_, tokens,
          {{.position = 39,
            .target = 7,
            .num_top = kTop,
            .top_ids = ids[0],
            .top_logprobs = logprobs[0],
            .logits = logits.data(),
            .result = &scored},
           {.position = 39,
            .num_top = kTop,
            .top_ids = ids[1],
            .top_logprobs = logprobs[1],
            .result = &greedy},
           {.position = 39, .target = 7, .result = &again}});
  const std::vector<double> expected = LogProbabilities(logits);
  EXPECT_EQ(scored.token, 7);
  EXPECT_NEAR(scored.logprob, expected[7], 1e-5);
  EXPECT_EQ(again.logprob, scored.logprob);
  EXPECT_EQ(greedy.token, ids[1][0]);
  EXPECT_EQ(greedy.logprob, logprobs[1][0]);
  EXPECT_EQ(expected[greedy.token], *std::max_element(expected.begin(), expected.end()));
  for (int i = 0; i < kTop; ++i) {
    EXPECT_EQ(ids[0][i], ids[1][i]);
    EXPECT_EQ(logprobs[0][i], logprobs[1][i]);
    EXPECT_NEAR(logprobs[0][i], expected[ids[0][i]], 1e-5);
    if (i > 0) {
      EXPECT_LE(logprobs[0][i], logprobs[0][i - 1]);
    }
  }
}

// The step samples more rows than the head computes at a time.
TEST_F(CpuModelTest, MoreSampledRowsThanAHeadBlockHoldsGetTheSameBits) {
  std::mt19937_64 random(12);
  const int64_t vocab = model_->config.vocab_size;
  const std::vector<int32_t> tokens = RandomTokens(random, 40, vocab);
  for (int rows : {0, 1, 31, 32, 33, 64, 65, 97}) {
    std::vector<float> logits(rows * vocab, NAN);
    std::vector<kernels::SampleResult> results(rows);
    std::vector<SampledRow> sampled;
    for (int i = 0; i < rows; ++i) {
      sampled.push_back({.position = i * 7 % 40,
                         .target = i % 3 == 0 ? i % 61 : -1,
                         .logits = logits.data() + i * vocab,
                         .result = &results[i]});
    }
    RunRows(*runner_, tokens, sampled);
    const Answer whole = runner_->Run({tokens})[0];
    for (int i = 0; i < rows; ++i) {
      const auto expected = whole.logits.begin() + sampled[i].position * vocab;
      ASSERT_TRUE(std::equal(expected, expected + vocab, sampled[i].logits)) << rows << " " << i;
      if (sampled[i].target >= 0) {
        ASSERT_EQ(results[i].token, sampled[i].target);
      }
    }
  }
}

TEST(CpuHeadTest, RowsThatAreNotFiniteHaveNoToken) {
  const TemporaryDirectory directory;
  WriteModel(TinyConfig(1), 4, kernels::DType::kF32, directory.path());
  const std::string path = directory.File("model.safetensors");
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  const auto entries = ParseSafetensors(bytes);
  ASSERT_TRUE(entries.ok());
  for (const SafetensorsEntry& entry : *entries) {  // makes the embedding of token 3 NaN
    if (entry.name != "model.embed_tokens.weight") continue;
    const float nan = NAN;
    bytes.replace(entry.data.data() - bytes.data() + 3 * 32 * sizeof(float), sizeof(float),
                  reinterpret_cast<const char*>(&nan), sizeof(float));
  }
  WriteTestFile(path, bytes);
  auto model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  Runner runner(*model, {.threads = 2}, {16, 2});
  const std::vector<Answer> answers = runner.Run({{1, 2, 4}, {1, 3, 5}});
  for (const kernels::SampleResult& result : answers[0].next) {
    EXPECT_GE(result.token, 0);
    EXPECT_TRUE(std::isfinite(result.logprob));
  }
  EXPECT_EQ(answers[1].next[0].token, 3);
  for (int i : {1, 2}) {  // the scored row and the drawn one
    EXPECT_EQ(answers[1].next[i].token, -1);
    EXPECT_TRUE(std::isnan(answers[1].next[i].logprob));
  }
}

using CpuModelDeathTest = CpuModelTest;

TEST_F(CpuModelDeathTest, ABatchThatExceedsItsBucketIsABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto plan = runner_->executable().Prepare({4, 1});
  ASSERT_TRUE(plan.ok());
  const std::vector<int32_t> tokens(5, 0);
  const auto replay = [&](int32_t count, int32_t page) {
    StepBatch batch(8, 1, 40, kernels::kPageTokens);
    const StepSequence step{0, count, tokens.data(), &page};
    batch.Assign({&step, 1}, {}, RowOrder::kSequenceMajor);
    return runner_->executable().Replay(**plan, runner_->slot(), batch);
  };
  const int32_t pages = runner_->slot().pages();
  EXPECT_TRUE(replay(4, pages - 1).ok());
  EXPECT_DEATH(replay(5, 0).IgnoreError(), "broken invariant: .*Fits");
  EXPECT_DEATH(replay(4, pages).IgnoreError(), "broken invariant: page");
}

}  // namespace
}  // namespace sluice::testing
