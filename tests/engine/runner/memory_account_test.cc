// Fills a model on the CPU and compares its memory account with the growth of the process.
#include <malloc.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/resident_memory.h"
#include "base/size_of.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "engine/step_description.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/fake_clock.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Sanitizers use additional memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

int64_t Resident() {
  malloc_trim(0);
  return ResidentBytes();
}

// Runs prompts of random tokens until no KV page is free and a kept page is evicted.
void FillPages(Engine* engine, const std::shared_ptr<const Model>& model) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int32_t> token(0,
                                               static_cast<int32_t>(model->config.vocab_size) - 1);
  for (int i = 0; i < 100; ++i) {
    if (engine->Stats()[0].kv.evicted > 0) return;
    auto spec = std::make_shared<RequestSpec>();
    spec->model = model;
    spec->lengths = {static_cast<int32_t>(model->config.max_positions) - 1};
    spec->max_tokens = 1;
    Request request;
    request.spec = std::move(spec);
    for (int32_t j = 0; j < request.spec->lengths[0]; ++j) request.tokens.push_back(token(random));
    SubmitTo(engine, request)->AwaitDone();
  }
  FAIL() << "pages stay free";
}

TEST(MemoryAccount, EqualsTheGrowthOfTheProcess) {
  ModelConfig config = testing::TinyConfig(4);
  config.vocab_size = 4096;
  config.hidden_size = 256;
  config.intermediate_size = 1024;
  config.heads = config.kv_heads = 4;
  config.head_dim = 64;
  config.max_positions = 512;
  const auto model = testing::RandomModel(config, 5);
  const auto backend = MakeCpuBackend({.threads = 2});
  ASSERT_TRUE(backend.ok()) << backend.status();
  RecordingObserver observer;
  EngineOptions options;
  options.kv.memory_bytes = 48 * kMiB;
  options.batch.max_batch_tokens = 1024;
  const auto engine = Engine::Create(options, backend->get(), Clock::Real(), &observer);
  const int64_t before = Resident();
  const absl::Status served = engine->Serve(model);
  ASSERT_TRUE(served.ok()) << served;
  FillPages(engine.get(), model);
  const int64_t grown = Resident() - before;
  const ModelStats stats = engine->Stats()[0];
  EXPECT_GE(stats.slot_memory.kv, 47 * kMiB);
  const int64_t account = stats.weight_bytes + stats.plan_memory_bytes +
                          stats.slot_memory.activations + stats.slot_memory.kv;
  RecordProperty("account_bytes", absl::StrCat(account));
  RecordProperty("resident_bytes", absl::StrCat(grown));
  if (kSanitized) return;
  EXPECT_NEAR(static_cast<double>(account) / static_cast<double>(grown), 1, 0.05)
      << "the account has " << account << " bytes, the process grew by " << grown << ": weights "
      << stats.weight_bytes << ", activations " << stats.slot_memory.activations << ", KV "
      << stats.slot_memory.kv << ", plans " << stats.plan_memory_bytes;
}

// The arena of the largest step is freed once only smaller steps have run for a while.
TEST(MemoryAccount, ActivationMemoryFollowsTheUsedBuckets) {
  ModelConfig config = testing::TinyConfig(1);
  config.hidden_size = 256;
  config.intermediate_size = 2048;
  config.max_positions = 2048;
  const auto model = testing::RandomModel(config, 5);
  const auto backend = MakeCpuBackend({.threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  RecordingObserver observer;
  FakeClock clock;
  EngineOptions options;
  options.batch.max_batch_tokens = 2048;
  options.batch.policy = PolicyKind::kFifoPacked;  // it does not cut prompts
  options.batch.max_queue_delay_us = 0;
  const auto engine = Engine::Create(options, backend->get(), &clock, &observer);
  ASSERT_TRUE(engine->Serve(model).ok());
  const auto run = [&](int32_t tokens) {
    Request request;
    RequestSpec& spec = Mutable(request.spec);
    spec.model = model;
    spec.lengths = {tokens};
    spec.max_tokens = 1;
    request.tokens.assign(static_cast<size_t>(tokens), 1);
    SubmitTo(engine.get(), request)->AwaitDone();
  };
  const auto held = [&] { return engine->Stats()[0].slot_memory.activations; };
  constexpr std::chrono::minutes kMinute{1};
  // Returns the time until which the scheduling thread sleeps after its pending work.
  const auto sleeps_until = [&] {
    return clock.AwaitWaiterFor({clock.Now() + kMinute, MonoTime::max()});
  };
  run(2000);
  const int64_t room = engine->Stats()[0].slot_memory.activation_room;
  EXPECT_EQ(held(), room);
  EXPECT_EQ(sleeps_until(), clock.Now() + kMinute);
  clock.Advance(kMinute);
  run(8);
  EXPECT_EQ(sleeps_until(), clock.Now() + kMinute);
  clock.Advance(kMinute);
  EXPECT_EQ(sleeps_until(), clock.Now() + kMinute);
  const int64_t small = held();
  EXPECT_GT(small, 0);
  EXPECT_LT(small, room / 8);
  clock.Advance(kMinute);
  EXPECT_EQ(sleeps_until(), MonoTime::max()) << "there is no memory left to free";
  EXPECT_EQ(held(), 0) << "an idle model";
  run(2000);
  EXPECT_EQ(held(), room);
}

// A model whose weights take most of its memory.
struct WeightsRow {
  const char* name;
  kernels::DType dtype = kernels::DType::kF32;
  QuantizationConfig quantization = {};
  bool tied = false;
  int64_t max_positions = 64;
};
class WeightMemoryTable : public TableTest<WeightsRow> {
 protected:
  WeightMemoryTable() {
    config_.vocab_size = 1024;
    config_.hidden_size = 256;
    config_.intermediate_size = 1024;
    config_.heads = 4;
    config_.kv_heads = 1;
    config_.head_dim = 64;
    config_.max_positions = row().max_positions;
    config_.tie_word_embeddings = row().tied;
    config_.quantization = row().quantization;
    testing::WriteModel(config_, 5, row().dtype, directory_.path());
  }

  std::shared_ptr<const Model> Load(const std::string& name) const {
    auto model = LoadModel(name, 1, directory_.path());
    SLUICE_CHECK(model.ok());
    return *std::move(model);
  }

  static int64_t WeightBytesOf(const std::shared_ptr<const Model>& model) {
    const auto backend = MakeCpuBackend({.threads = 1});
    SLUICE_CHECK(backend.ok());
    const auto executable = (*backend)->Load(model);
    SLUICE_CHECK(executable.ok());
    return (*executable)->weight_bytes();
  }

  ModelConfig config_ = testing::TinyConfig(4);
  const TemporaryDirectory directory_;
};

TEST_P(WeightMemoryTable, IsEstimatedFromTheStoredElements) {
  const auto model = Load("model");
  EXPECT_NEAR(
      static_cast<double>(EstimateWeightMemory(*model)) / static_cast<double>(WeightBytesOf(model)),
      1, 0.05);
}

// The first models would leave too little memory for the weights of the last one if they expected
// smaller weights.
TEST_P(WeightMemoryTable, FiveModelsThatLoadTogetherShareASmallMemory) {
  constexpr int64_t kModels = 5;
  std::vector<std::shared_ptr<const Model>> models;
  for (int i = 0; i < kModels; ++i) models.push_back(Load(absl::StrCat("model", i)));
  // The activations of a step of 64 tokens, and the pages of the longest sequence.
  const int64_t own =
      3 * kMiB + row().max_positions * 2 * config_.layers * config_.head_dim * kSizeOf<float>;
  const int64_t bytes = kModels * (WeightBytesOf(models[0]) + own);
  const auto backend = MakeCpuBackend({.threads = 1}, {}, [=] { return bytes; });
  ASSERT_TRUE(backend.ok()) << backend.status();
  RecordingObserver observer;
  EngineOptions options;
  options.batch.max_batch_sequences = 4;
  const auto engine = Engine::Create(options, backend->get(), Clock::Real(), &observer);
  const absl::Status status = engine->Exchange({.serve = models, .withdraw = {}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::ssize(engine->Models()), kModels);
}

const WeightsRow kWeightsRows[] = {
    {.name = "InF32"},
    {.name = "InBf16", .dtype = kernels::DType::kBF16},
    {.name = "InF16AreWidened", .dtype = kernels::DType::kF16},
    {.name = "TiedWeightsCountTwice", .tied = true},
    {.name = "LongTablesOfPositions", .max_positions = 4096},
    {.name = "F32ToInt8", .quantization = {.projections = Quantization::kInt8, .head = true}},
    {.name = "Bf16ToInt8",
     .dtype = kernels::DType::kBF16,
     .quantization = {.projections = Quantization::kInt8, .head = true}},
    {.name = "F32ToInt4", .quantization = {.projections = Quantization::kInt4}},
    {.name = "Bf16ToInt4",
     .dtype = kernels::DType::kBF16,
     .quantization = {.projections = Quantization::kInt4}},
};
SLUICE_TABLE(WeightMemoryTable, kWeightsRows);

}  // namespace
}  // namespace sluice
