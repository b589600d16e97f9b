// The variants of attention in whole models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/select_attention.h"
#include "kernels/cpu/kv_cache.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

using Kind = AttentionVariant::Kind;

constexpr AttentionVariant kVariants[] = {
    {Kind::kAuto}, {Kind::kOnePass}, {Kind::kTwoPass}, {Kind::kSplit, 0}, {Kind::kSplit, 3}};

// Some rows of a prompt.
struct PromptRows {
  size_t prompt;
  int32_t first, count;
};

// Computes prompts of a model with a variant, in steps, and keeps the logits of all rows.
class VariantRunner {
 public:
  VariantRunner(const std::shared_ptr<const Model>& model, const AttentionVariant& variant,
                int threads, const std::vector<std::vector<int32_t>>& prompts)
      : prompts_(prompts), config_(model->config) {
    backend_ = MakeCpuBackend({.threads = threads, .poison = true}, {.variant = variant}).value();
    executable_ = backend_->Load(model).value();
    int32_t pages = 0;
    for (const std::vector<int32_t>& prompt : prompts) {
      const auto length = static_cast<int32_t>(prompt.size());
      bucket_.tokens += length;
      ++bucket_.sequences;
      pages_.emplace_back((length + kernels::kPageTokens - 1) / kernels::kPageTokens);
      std::iota(pages_.back().rbegin(), pages_.back().rend(), pages);
      pages += static_cast<int32_t>(pages_.back().size());
      logits_.emplace_back(length * config_.vocab_size);
    }
    slot_ = executable_->CreateSlot(bucket_, pages).value();
    plan_ = executable_->Prepare(bucket_).value();
  }

  void Step(const std::vector<PromptRows>& rows) {
    StepBatch batch(bucket_.tokens, bucket_.sequences, config_.max_positions, kernels::kPageTokens);
    std::vector<StepSequence> sequences;
    std::vector<SampledRow> sampled;
    std::vector<kernels::SampleResult> results(bucket_.tokens);
    for (const auto& [prompt, first, count] : rows) {
      for (int32_t p = first; p < first + count; ++p) {
        sampled.push_back({.sequence = static_cast<int32_t>(sequences.size()),
                           .position = p,
                           .logits = logits_[prompt].data() + p * config_.vocab_size,
                           .result = &results[sampled.size()]});
      }
      sequences.push_back({first, count, prompts_[prompt].data() + first, pages_[prompt].data()});
    }
    batch.Assign(sequences, sampled, executable_->row_order());
    SLUICE_CHECK(executable_->Replay(*plan_, *slot_, batch).ok());
  }

  const std::vector<float>& logits(size_t prompt) const { return logits_[prompt]; }

 private:
  const std::vector<std::vector<int32_t>> prompts_;
  const ModelConfig config_;
  Bucket bucket_ = {0, 0};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
  std::vector<std::vector<int32_t>> pages_;  // by prompt
  std::vector<std::vector<float>> logits_;
  std::unique_ptr<Slot> slot_;
  std::shared_ptr<const Plan> plan_;
};

bool SameLogits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Returns a model of several segments of positions. One layer excludes the row itself.
std::shared_ptr<const Model> LongModel(int64_t positions) {
  ModelConfig config = TinyConfig(2);
  config.xsa.layers = {true, false};
  config.max_positions = positions;
  return RandomModel(config, 21);
}

TEST(AttentionVariants, GiveAModelTheSameBitsWithAnyThreadsAndCuts) {
  constexpr int32_t kLength = 1100;
  const auto model = LongModel(kLength);
  std::mt19937_64 random(22);
  const std::vector<std::vector<int32_t>> prompt = {
      RandomTokens(random, kLength, model->config.vocab_size)};
  VariantRunner expected(model, {Kind::kOnePass}, 1, prompt);
  expected.Step({{0, 0, kLength}});
  for (const AttentionVariant& variant : kVariants) {
    for (const int threads : {1, 2, 3}) {
      for (const std::vector<int32_t>& cuts :
           {std::vector<int32_t>{0, kLength}, {0, 500, 530, 1023, 1024, 1025, kLength}}) {
        VariantRunner runner(model, variant, threads, prompt);
        for (size_t c = 0; c + 1 < cuts.size(); ++c) {
          runner.Step({{0, cuts[c], cuts[c + 1] - cuts[c]}});
        }
        ASSERT_TRUE(SameLogits(runner.logits(0), expected.logits(0)))
            << AttentionVariantName(variant) << ", " << threads << " threads, " << cuts.size() - 1
            << " steps";
      }
    }
  }
}

// Short and long sequences share steps. Prompts are computed in pieces of any length in the same
// steps as sequences that are decoded.
TEST(AttentionVariants, GiveASequenceTheSameBitsInABatchAndByItself) {
  constexpr int32_t kLengths[] = {2600, 1100, 513, 90, 9};
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto model = LongModel(kLengths[0]);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> alone;
  for (const int32_t length : kLengths) {
    prompts.push_back(RandomTokens(random, length, model->config.vocab_size));
    VariantRunner runner(model, {Kind::kOnePass}, 1, {prompts.back()});
    runner.Step({{0, 0, length}});
    alone.push_back(runner.logits(0));
  }
  for (const AttentionVariant& variant : kVariants) {
    for (const int threads : {1, 2, 3}) {
      VariantRunner runner(model, variant, threads, prompts);
      std::vector<int32_t> done(prompts.size());
      for (;;) {
        std::vector<PromptRows> step;
        for (size_t p = 0; p < prompts.size(); ++p) {
          const int32_t left = kLengths[p] - done[p];
          if (left == 0 || random() % 4 == 0) continue;
          // The last rows are computed one by one, as when they are decoded.
          const auto most = static_cast<int32_t>(random() % 2 == 0 ? 12 : 900);
          const int32_t count = left <= 6 ? 1 : std::min(most, left - 6);
          step.push_back({p, done[p], count});
          done[p] += count;
        }
        if (!step.empty()) runner.Step(step);
        if (std::equal(done.begin(), done.end(), std::begin(kLengths))) break;
      }
      for (size_t p = 0; p < prompts.size(); ++p) {
        ASSERT_TRUE(SameLogits(runner.logits(p), alone[p]))
            << AttentionVariantName(variant) << ", " << threads << " threads, a prompt of "
            << kLengths[p];
      }
    }
  }
}

TEST(AttentionVariants, AModelReportsItsVariant) {
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
