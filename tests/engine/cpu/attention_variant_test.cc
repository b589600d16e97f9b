// The variants of attention in whole models.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/cpu/attention_choice.h"
#include "engine/cpu/cpu_backend.h"
#include "kernels/cpu/kv_cache.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

using Kind = AttentionVariant::Kind;

constexpr AttentionVariant kVariants[] = {
    {Kind::kAuto}, {Kind::kOnePass}, {Kind::kTwoPass}, {Kind::kSplit, 0}, {Kind::kSplit, 3}};

// Returns the logits of all rows of one prompt, computed in steps that begin at `cuts`, of which
// the last one is its end.
std::vector<float> LogitsOf(const std::shared_ptr<const Model>& model,
                            const AttentionVariant& variant, int threads,
                            const std::vector<int32_t>& tokens, const std::vector<int32_t>& cuts) {
  const auto length = static_cast<int32_t>(tokens.size());
  const auto backend = MakeCpuBackend({.threads = threads, .poison = true}, {.variant = variant});
  SLUICE_CHECK(backend.ok());
  const auto executable = (*backend)->Load(model);
  SLUICE_CHECK(executable.ok());
  std::vector<int32_t> pages((length + kernels::kPageTokens - 1) / kernels::kPageTokens);
  std::iota(pages.rbegin(), pages.rend(), 0);
  const auto slot = (*executable)->CreateSlot({length, 1}, static_cast<int32_t>(pages.size()));
  const auto plan = (*executable)->Prepare({length, 1});
  SLUICE_CHECK(slot.ok() && plan.ok());
  const int64_t vocab = model->config.vocab_size;
  StepBatch batch(length, 1, model->config.max_positions, kernels::kPageTokens);
  std::vector<float> logits(length * vocab);
  std::vector<kernels::SampleResult> results(length);
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    const StepSequence step{cuts[c], cuts[c + 1] - cuts[c], tokens.data() + cuts[c], pages.data()};
    std::vector<SampledRow> sampled;
    for (int32_t p = cuts[c]; p < cuts[c + 1]; ++p) {
      sampled.push_back(
          {.position = p, .logits = logits.data() + p * vocab, .result = &results[p]});
    }
    batch.Assign({&step, 1}, sampled, (*executable)->row_order());
    SLUICE_CHECK((*executable)->Replay(**plan, **slot, batch).ok());
  }
  return logits;
}

TEST(AttentionVariants, GiveAModelTheSameBitsWithAnyThreadsAndCuts) {
  constexpr int32_t kLength = 1100;
  ModelConfig config = TinyConfig(2);
  config.xsa.layers = {true, false};
  config.max_positions = kLength;
  const auto model = RandomModel(config, 21);
  std::mt19937_64 random(22);
  const std::vector<int32_t> tokens = RandomTokens(random, kLength, config.vocab_size);
  const std::vector<float> expected = LogitsOf(model, {Kind::kOnePass}, 1, tokens, {0, kLength});
  for (const AttentionVariant& variant : kVariants) {
    for (const int threads : {1, 2, 3}) {
      for (const std::vector<int32_t>& cuts :
           {std::vector<int32_t>{0, kLength}, {0, 500, 530, 1023, 1024, 1025, kLength}}) {
        const std::vector<float> logits = LogitsOf(model, variant, threads, tokens, cuts);
        ASSERT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0)
            << AttentionVariantName(variant) << ", " << threads << " threads, " << cuts.size() - 1
            << " steps";
      }
    }
  }
}

TEST(AttentionVariants, AModelTellsItsVariant) {
  const auto model = RandomModel(TinyConfig(1), 23);
  for (const AttentionVariant& variant : kVariants) {
    const auto backend = MakeCpuBackend({.threads = 2}, {.variant = variant}).value();
    const auto executable = backend->Load(model).value();
    const AttentionVariant chosen = executable->attention();
    EXPECT_NE(chosen.kind, Kind::kAuto);
    EXPECT_TRUE(variant.kind == Kind::kAuto || chosen == variant);
    EXPECT_EQ(executable->algorithms(),
              "attention " + AttentionVariantName(executable->attention()));
  }
}

TEST(AttentionVariants, OnlyTwoPassesNeedScratchMemoryForAllScores) {
  const auto bytes = [](AttentionVariant variant, int64_t positions) {
    ModelConfig config = TinyConfig(1);
    config.max_positions = positions;
    const auto backend = MakeCpuBackend({.threads = 1}, {.variant = variant}).value();
    return backend->Load(RandomModel(config, 24)).value()->activation_bytes({16, 1});
  };
  EXPECT_EQ(bytes({Kind::kOnePass}, 8192), bytes({Kind::kOnePass}, 1024));
  EXPECT_GE(bytes({Kind::kTwoPass}, 8192), bytes({Kind::kTwoPass}, 1024) + 8 * 7168 * 4);
}

}  // namespace
}  // namespace sluice::testing
