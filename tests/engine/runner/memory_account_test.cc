// Fills a model on the CPU and compares its memory account with the growth of the process.
#include <malloc.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "base/resident_memory.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/fake_clock.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"

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

}  // namespace
}  // namespace sluice
