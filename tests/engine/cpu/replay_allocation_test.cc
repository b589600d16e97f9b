// Checks that a replay allocates no memory and creates no oneDNN primitive.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cpu/kv_cache.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

// The parameters are a profile, and whether the model has all ops that only Sluice models have.
class ReplayAllocationTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

ModelConfig ExplicitConfig() {
  ModelConfig config = TinySluiceConfig(2);
  config.norm.kind = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.position_rows = config.max_positions;
  config.qk_norm = config.query_gain = true;
  config.gated_mlp = false;
  config.activation = Activation::kGelu;
  config.branch_scale = config.residual_mix = config.skip_weights = true;
  config.logit_soft_cap = 30;
  config.experts = {.count = 5, .chosen = 2, .width = 20, .layers = {false, true}};
  config.input = InputKind::kBoth;
  config.input_width = 9;
  config.input_adapter = InputAdapter::kDense;
  return config;
}

TEST_P(ReplayAllocationTest, ReplaysOfManyStepsAllocateNothing) {
  const auto& [profile, everything] = GetParam();
  ModelConfig config = everything ? ExplicitConfig() : TinyConfig(2);
  config.position_wise.layers[static_cast<int>(Projection::kV)][0] = true;
  config.position_wise.max_positions = 40;
  config.xsa.layers[1] = true;
  const auto model = RandomModelWithAdapters(config, 6, kernels::DType::kF32, 3);
  Runner runner(model, {.threads = 2, .profile = profile}, {100, 4});
  const ExecutableModel& executable = runner.executable();
  std::vector<std::unique_ptr<const LoadedAdapter>> adapters(1);  // the first is the base model
  for (const auto& adapter : model->adapters) {
    adapters.push_back(executable.LoadAdapter(**adapter.read()).value());
  }
  const auto plan = executable.Prepare({100, 4});
  ASSERT_TRUE(plan.ok());

  const uint64_t seed = 31;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::vector<int32_t> tokens = RandomTokens(random, 40, config.vocab_size);
  const std::vector<int32_t> pages = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<float> diagnostics(config.layers * 100 * config.heads);
  std::vector<float> logits(config.vocab_size);
  std::vector<int32_t> top_ids(3);
  std::vector<float> top_logprobs(3);
  std::vector<kernels::SampleResult> results(100);
  std::vector<StepSequence> sequences(4);
  std::vector<SampledRow> sampled(100);
  const kernels::SeenToken seen[] = {{3, 1}, {4, 0}};
  const kernels::TokenBias bias[] = {{3, 1.0f}};
  const int32_t allowed[] = {1, 3, 4, 5, 9, 20};
  const kernels::LogitEdits edits[] = {
      {.seen = seen, .repetition = 1.5f, .presence = 0.5f, .bias = bias},
      {.seen = seen, .repetition = 1.5f, .allowed = allowed}};
  StepBatch batch(100, 4, 40, kernels::kPageTokens, static_cast<int32_t>(config.input_width));

  const int64_t before = AllocationsOfAllThreads();
  for (int run = 0; run < 100; ++run) {  // a different mix of lengths each
    int32_t rows = 0;
    for (int s = 0; s < 4; ++s) {
      const int32_t length = 1 + static_cast<int32_t>(random() % 25);
      sequences[s] = {0, length, tokens.data(), pages.data() + 2 * s};
      sequences[s].adapter = adapters[random() % adapters.size()].get();
      for (int32_t i = 0; i < length; ++i, ++rows) {
        sampled[rows] = {.sequence = s,
                         .position = i,
                         .target = i % 3 - 1,
                         .params = {.temperature = 0.5f, .top_k = 4, .top_p = 0.9f},
                         .edits = i % 2 == 0 ? &edits[s % 2] : nullptr,
                         .num_top = 3,
                         .top_ids = top_ids.data(),
                         .top_logprobs = top_logprobs.data(),
                         .logits = logits.data(),
                         .result = &results[rows]};
        // Rows are computed in parallel, so only one of them may write to the shared storage.
        if (rows > 0) {
          sampled[rows].num_top = 0;
          sampled[rows].logits = nullptr;
        }
      }
    }
    batch.Assign(sequences, {sampled.data(), static_cast<size_t>(rows)}, executable.row_order());
    batch.xsa_cos_sim = diagnostics.data();
    batch.xsa_proj_frac = diagnostics.data();
    if (!executable.Replay(**plan, runner.slot(), batch).ok()) std::abort();
  }
  EXPECT_EQ(AllocationsOfAllThreads() - before, 0);
}

INSTANTIATE_TEST_SUITE_P(Profiles, ReplayAllocationTest,
                         ::testing::Combine(::testing::ValuesIn(SupportedProfiles()),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) +
                                           (std::get<1>(test.param) ? "_explicit" : "_llama"));
                         });

TEST(ReplayAllocationSelfTest, TheCounterSeesAnAllocation) {
  const int64_t before = AllocationsOfAllThreads();
  { const std::vector<int> some(100); }
  EXPECT_GE(AllocationsOfAllThreads() - before, 1);
}

}  // namespace
}  // namespace sluice::testing
