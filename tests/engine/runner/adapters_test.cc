// Runs adapters through the engine on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>

#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int kAdapters = 64;

class AdaptersInTheEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = MakeCpuBackend({.threads = 2, .poison = true});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  std::unique_ptr<Engine> Serve(const EngineOptions& options, RecordingObserver* observer) const {
    auto engine = Engine::Create(options, backend_.get(), Clock::Real(), observer);
    const absl::Status status = engine->Serve(model_);
    EXPECT_TRUE(status.ok()) << status;
    return engine;
  }

  Request Prompt(const std::string& adapter) const {
    Request request;
    RequestSpec& spec = Mutable(request.spec);
    spec.model = model_;
    spec.adapter = adapter;
    spec.lengths = {37};
    for (int32_t i = 0; i < 37; ++i) request.tokens.push_back(i % 7);
    spec.max_tokens = 1;
    request.outputs = kOutputTokens | kOutputLogits;
    return request;
  }

  const std::shared_ptr<const Model> model_ =
      testing::RandomModelWithAdapters(testing::TinyConfig(2), 3, kernels::DType::kF32, kAdapters);
  std::unique_ptr<Backend> backend_;
};

TEST_F(AdaptersInTheEngine, AStepMixes64AdaptersAndTheBaseWithTheBitsOfEachAlone) {
  EngineOptions options;
  options.batch.max_batch_sequences = 2 * kAdapters;
  RecordingObserver alone_observer, together_observer;
  const auto one_by_one = Serve(options, &alone_observer);
  options.batch.policy = PolicyKind::kFifoPacked;
  options.batch.max_queue_delay_us = 3'600'000'000;  // the batch is full at the drain
  const auto mixed = Serve(options, &together_observer);
  const uint64_t seed = 404;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::shared_ptr<RecordingSink>> alone, together;
  for (int i = 0; i <= kAdapters; ++i) {
    Request request = RandomRequest(model_, random, {.most_rows = 1, .most_length = 5});
    Mutable(request.spec).max_tokens = 1;
    if (i < kAdapters) Mutable(request.spec).adapter = std::to_string(i);
    together.push_back(SubmitTo(mixed.get(), request));
    alone.push_back(SubmitTo(one_by_one.get(), request));
    alone.back()->AwaitDone();
  }
  mixed->Drain(MonoTime::max());
  ASSERT_EQ(together_observer.batches().size(), 1u) << "all rows are in one step";
  EXPECT_EQ(together_observer.batches()[0].sequences, kAdapters + 1);
  for (size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameAnswer(*alone[i], *together[i]);
  }
}

// The rows of a model that keeps pages could share the pages of the prompt.
TEST_F(AdaptersInTheEngine, PagesAreReusedOnlyByRequestsOfTheSameAdapter) {
  for (const bool private_prefixes : {false, true}) {
    EngineOptions options;
    options.kv.private_prefixes = private_prefixes;
    RecordingObserver observer;
    const auto engine = Serve(options, &observer);
    std::vector<std::vector<float>> logits;
    for (const char* adapter : {"", "0", "1", "1", "", "0"}) {
      const auto sink = SubmitTo(engine.get(), Prompt(adapter));
      sink->AwaitDone();
      ASSERT_TRUE(sink->status().ok()) << sink->status();
      logits.push_back(sink->reply().logits);
      EXPECT_EQ(sink->trace().reused_tokens > 0, logits.size() > 3) << logits.size();
    }
    EXPECT_EQ(logits[2], logits[3]);
    EXPECT_EQ(logits[0], logits[4]);
    EXPECT_EQ(logits[1], logits[5]);
    EXPECT_EQ(std::set(logits.begin(), logits.end()).size(), 3u);
  }
}

TEST_F(AdaptersInTheEngine, AnUnknownAdapterIsNotFoundAndTheErrorNamesTheKnownOnes) {
  RecordingObserver observer;
  const auto engine = Serve({}, &observer);
  EXPECT_EQ(*engine->Resolve("random:7", ""), model_);
  EXPECT_EQ(*engine->Resolve("random:7", "1"), model_);
  const absl::Status resolved = engine->Resolve("random:none", "").status();
  EXPECT_EQ(resolved.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(resolved.message()),
              HasSubstr("model random has no adapter 'none'; known: 0, 1, 10, 11, "));
  EXPECT_EQ(engine->Resolve("none:7", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine->Resolve("random:", "").status().code(), absl::StatusCode::kNotFound);
  const auto sink = std::make_shared<RecordingSink>();
  const auto refused = engine->Submit(Prompt("none"), sink, Clock::Real()->Now());
  EXPECT_EQ(refused.status(), resolved);
  EXPECT_EQ(observer.rejected(Reason::kNotFound), 1);
}

TEST_F(AdaptersInTheEngine, ARefusedRequestOfATestFailsTheTestAndEnds) {
  RecordingObserver observer;
  const auto engine = Serve({}, &observer);
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(&failures);
    SubmitTo(engine.get(), Prompt("none"))->AwaitDone();
  }
  ASSERT_EQ(failures.size(), 1);
  EXPECT_THAT(failures.GetTestPartResult(0).message(), HasSubstr("has no adapter 'none'"));
}

// Waiting and running requests finish on an adapter that is unloaded. Its pages are not reused by a
// later load.
TEST_F(AdaptersInTheEngine, AnAdapterIsUnloadedAndLoadedAgainWhileItsRequestsRun) {
  RecordingObserver observer;
  const auto engine = Serve({}, &observer);
  const auto expected = SubmitTo(engine.get(), Prompt("5"));
  expected->AwaitDone();
  for (int round = 0; round < 5; ++round) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 20; ++i) sinks.push_back(SubmitTo(engine.get(), Prompt("5")));
    ASSERT_EQ(engine->UnloadAdapter(*model_, "5"), absl::OkStatus());
    EXPECT_EQ(engine->UnloadAdapter(*model_, "5").code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(engine->Resolve("random:5", "").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(engine->Adapters(*model_).size(), kAdapters - 1);
    for (const auto& sink : sinks) {
      sink->AwaitDone();
      ASSERT_TRUE(sink->status().ok()) << sink->status();
      EXPECT_EQ(sink->reply().logits, expected->reply().logits);
    }
    const auto adapter =
        std::ranges::find_if(model_->adapters, [](const auto& each) { return each.name == "5"; });
    ASSERT_EQ(engine->LoadAdapter(*model_, *adapter), absl::OkStatus());
    const auto first = SubmitTo(engine.get(), Prompt("5"));
    first->AwaitDone();
    EXPECT_EQ(first->trace().reused_tokens, 0);
    EXPECT_EQ(first->reply().logits, expected->reply().logits);
  }
}

// Serves a model whose memory holds one or two of the adapters that Load loads.
class EvictedAdapters : public AdaptersInTheEngine {
 protected:
  static constexpr int64_t kMemory = 120'000;

  void SetUp() override {
    AdaptersInTheEngine::SetUp();
    engine_ = Engine::Create({}, backend_.get(), Clock::Real(), &observer_);
    ASSERT_EQ(engine_->Serve(small_), absl::OkStatus());
  }
  void Load(const AdapterSource& source) {
    ASSERT_EQ(engine_->LoadAdapter(*small_, source), absl::OkStatus());
  }
  std::vector<std::string> Loaded() const { return engine_->Stats()[0].adapters.loaded; }
  // Evicts the adapter "5", once the last request that used it has released it.
  void Evict5() {
    do {
      for (const size_t other : {6, 7, 8, 9}) Load(model_->adapters[other]);
    } while (std::ranges::count(Loaded(), "5") > 0);
  }
  Request Small(const std::string& adapter) const {
    Request request = Prompt(adapter);
    Mutable(request.spec).model = small_;
    return request;
  }

  const TemporaryDirectory root_;  // an empty folder of adapters
  const std::shared_ptr<const Model> small_ =
      testing::RandomModelWithAdapters(testing::TinyConfig(2), 3, kernels::DType::kF32, 0,
                                       {.adapters = root_.path(), .adapter_memory_bytes = kMemory});
  RecordingObserver observer_;
  std::unique_ptr<Engine> engine_;
};

// Several threads call the adapters in a drawn order.
TEST_F(EvictedAdapters, AreLoadedAgainWithTheSameBits) {
  RecordingObserver observer;
  const auto all = Serve({}, &observer);
  ASSERT_GT(all->Stats()[0].adapters.bytes, 4 * kMemory);
  std::vector<std::vector<float>> expected;
  for (const AdapterSource& adapter : model_->adapters) {
    Load(adapter);
    const auto sink = SubmitTo(all.get(), Prompt(adapter.name));
    sink->AwaitDone();
    expected.push_back(sink->reply().logits);
  }
  const std::vector<std::string> names = engine_->Adapters(*small_);
  EXPECT_EQ(std::ssize(names), kAdapters);
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const auto call = [&](uint64_t own) {
    std::mt19937_64 random(own);
    for (int i = 0; i < 100; ++i) {
      const size_t adapter = random() % kAdapters;
      Request request = Small(model_->adapters[adapter].name);
      request.caller = std::to_string(own % 2);
      const auto sink = SubmitTo(engine_.get(), request);
      sink->AwaitDone();
      EXPECT_EQ(sink->status(), absl::OkStatus());
      EXPECT_EQ(sink->reply().logits, expected[adapter]) << adapter;
      EXPECT_LE(engine_->Stats()[0].adapters.bytes, kMemory);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back(call, seed + i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine_->Adapters(*small_), names);
  EXPECT_EQ(engine_->Stats()[0].waiting_sequences, 0);
  for (const std::string& name : names) {
    EXPECT_EQ(engine_->UnloadAdapter(*small_, name), absl::OkStatus());
  }
  engine_->Drain(MonoTime::max());
  EXPECT_EQ(engine_->Stats()[0].adapters.bytes, 0);
}

TEST_F(EvictedAdapters, DelayNoOtherRequestWhileTheirLoadIsBlocked) {
  Mutex mu;
  CondVar changed;
  int reads = 0, allowed = 1;
  const AdapterSource blocked = {"5", [&] {
                                   MutexLock lock(&mu);
                                   ++reads;
                                   changed.SignalAll();
                                   while (reads > allowed) changed.Wait(&mu);
                                   return model_->adapters[0].read();
                                 }};
  const auto await_read = [&](int read) {
    MutexLock lock(&mu);
    while (reads < read) changed.Wait(&mu);
  };
  const auto allow = [&](int count) {
    MutexLock lock(&mu);
    allowed = count;
    changed.SignalAll();
  };
  Load(blocked);
  const auto before = SubmitTo(engine_.get(), Small("5"));
  before->AwaitDone();
  Evict5();
  const auto waiting = SubmitTo(engine_.get(), Small("5"));
  await_read(2);
  const std::vector<std::string> loaded = Loaded();
  ASSERT_FALSE(loaded.empty());
  for (const std::string& other : {std::string(), loaded.front()}) {
    const auto sink = SubmitTo(engine_.get(), Small(other));
    sink->AwaitDone();
    EXPECT_EQ(sink->status(), absl::OkStatus()) << other;
  }
  Request expiring = Small("5");
  expiring.deadline = Clock::Real()->Now() + std::chrono::seconds(1);
  const auto expired = SubmitTo(engine_.get(), expiring);
  expired->AwaitDone();
  EXPECT_EQ(expired->status().code(), absl::StatusCode::kDeadlineExceeded);
  const auto cancelled = std::make_shared<RecordingSink>();
  engine_->Cancel(engine_->Submit(Small("5"), cancelled, Clock::Real()->Now()).value());
  cancelled->AwaitDone();
  EXPECT_EQ(cancelled->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine_->Stats()[0].waiting_sequences, 1);
  allow(2);
  waiting->AwaitDone();
  EXPECT_EQ(waiting->status(), absl::OkStatus());
  EXPECT_EQ(waiting->reply().logits, before->reply().logits);

  Evict5();
  const auto drained = SubmitTo(engine_.get(), Small("5"));
  await_read(3);
  engine_->Drain(Clock::Real()->Now());
  drained->AwaitDone();
  EXPECT_EQ(drained->status().code(), absl::StatusCode::kUnavailable);
  allow(3);
  engine_.reset();
}

TEST_F(EvictedAdapters, FailTheirRequestsByNameIfTheyCannotBeReadAgain) {
  bool broken = false;
  Load({"5", [&]() -> absl::StatusOr<std::shared_ptr<const Adapter>> {
          if (broken) return absl::NotFoundError("adapter 5: adapter_config.json is missing");
          return model_->adapters[0].read();
        }});
  Evict5();
  broken = true;
  const auto sink = SubmitTo(engine_.get(), Small("5"));
  sink->AwaitDone();
  EXPECT_EQ(sink->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(sink->status().message()),
            "model random: adapter 5: adapter_config.json is missing. The adapter was evicted, and "
            "its folder has changed since. Correct the folder, or unload the adapter");
  engine_.reset();
}

TEST_F(AdaptersInTheEngine, AModelWithoutAFolderOfAdaptersHasNone) {
  RecordingObserver observer;
  const auto engine = Engine::Create({}, backend_.get(), Clock::Real(), &observer);
  ASSERT_TRUE(engine->Serve(testing::RandomModel(testing::TinyConfig(2), 3)).ok());
  EXPECT_THAT(std::string(engine->Resolve("random:0", "").status().message()),
              HasSubstr("model random has no adapter '0'; it has none"));
  const auto served = engine->Resolve("random", "").value();
  const absl::Status refused = engine->LoadAdapter(*served, model_->adapters[0]);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("make the folder `adapters`"));
}

}  // namespace
}  // namespace sluice
