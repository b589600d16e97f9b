// Runs the engine on an emulated device whose memory runs out at a capture, at the start or while
// serving.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "engine/engine.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_observer.h"
#include "tests/support/request_spec.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// The bytes of a captured graph. Everything else fits in half of this size.
constexpr int64_t kGraph = 4 << 20;
constexpr int32_t kLongest = 40;

EngineOptions SmallLadder() {
  EngineOptions options;
  options.ladder.strategy = StrategyKind::kAdaptive;
  options.ladder.min_tokens = 8;
  options.ladder.max_buckets = 4;
  options.ladder.review.interval_us = 0;
  options.batch.max_batch_tokens = kLongest;
  options.batch.max_batch_sequences = 2;
  options.kv.memory_bytes = 256 << 10;
  return options;
}

// A model whose steps take a time that depends on their bucket, on the test's clock. The emulator's
// own time is not used.
class TimedModel final : public ExecutableModel {
 public:
  TimedModel(std::unique_ptr<ExecutableModel> model, FakeClock* clock)
      : model_(std::move(model)), clock_(clock) {}
  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  std::vector<std::string> notices() const override { return model_->notices(); }
  RowOrder row_order() const override { return model_->row_order(); }
  // Its times depend on the bucket.
  ComputedRows computed_rows() const override { return ComputedRows::OfBucket(); }
  int64_t page_bytes() const override { return model_->page_bytes(); }
  int64_t activation_bytes(const Bucket& largest) const override {
    return model_->activation_bytes(largest);
  }
  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const Bucket& bucket) const override {
    return model_->Prepare(bucket);
  }
  absl::StatusOr<std::unique_ptr<Plan>> Eager(const Bucket& bucket) const override {
    return model_->Eager(bucket);
  }
  absl::StatusOr<std::unique_ptr<Slot>> CreateSlot(const Bucket& largest,
                                                   int32_t pages) const override {
    return model_->CreateSlot(largest, pages);
  }
  void Start(const Plan& plan, Slot& slot, const StepBatch& batch) const override {
    clock_->Advance(std::chrono::microseconds(100 + 20 * plan.bucket().tokens));
    model_->Start(plan, slot, batch);
  }
  absl::Status Finish(Slot& slot) const override { return model_->Finish(slot); }

 private:
  const std::unique_ptr<ExecutableModel> model_;
  FakeClock* const clock_;
};

class TimedBackend final : public Backend {
 public:
  TimedBackend(std::unique_ptr<Backend> backend, FakeClock* clock)
      : backend_(std::move(backend)), clock_(clock), info_(backend_->info()) {
    info_.timed_runs = 1;  // the emulator is slow
  }
  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override { return backend_->FreeMemory(); }
  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    SLUICE_ASSIGN_OR_RETURN(auto loaded, backend_->Load(std::move(model)));
    return std::make_unique<TimedModel>(std::move(loaded), clock_);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  FakeClock* const clock_;
  BackendInfo info_;
};

constexpr int64_t kHeadGraphs = 4;  // for few rows, for many, for scoring, for diverse lists

// An engine on a device with memory for `graphs` graphs, including the head's. `taken_graphs` of
// them are occupied until GiveBack.
class Served {
 public:
  explicit Served(int64_t graphs, int64_t taken_graphs = 0, int64_t memory_limit_bytes = 0) {
    auto device =
        simt::MakeSimtDevice({.memory_bytes = graphs * kGraph + kGraph / 2, .graph_bytes = kGraph});
    device_ = device.get();
    if (taken_graphs > 0) {
      taken_ = device_->Allocate(static_cast<size_t>(taken_graphs * kGraph)).value();
    }
    backend_.emplace(MakeCudaBackend(std::move(device), {.dtype = "f32", .dense = "own"}).value(),
                     &clock);
    EngineOptions options = SmallLadder();
    options.ladder.memory_limit_bytes = memory_limit_bytes;
    engine = Engine::Create(options, &*backend_, &clock, &observer);
    status = engine->Serve(model);
  }

  std::shared_ptr<RecordingSink> Submit(int32_t length) {
    Request request;
    Mutable(request.spec).model = model;
    for (int32_t i = 0; i < length; ++i) request.tokens.push_back((i * 7 + length) % 61);
    Mutable(request.spec).lengths = {length};
    Mutable(request.spec).max_tokens = 1;
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(engine->Submit(std::move(request), sink, clock.Now()).ok());
    return sink;
  }
  // Returns the token drawn after `length` tokens, and its log-probability.
  std::pair<int32_t, float> Answer(int32_t length) {
    const auto sink = Submit(length);
    sink->AwaitDone();
    EXPECT_TRUE(sink->status().ok()) << sink->status();
    if (!sink->status().ok()) return {-1, 0};
    return {sink->row_tokens(0)[0], sink->row_logprobs(0)[0]};
  }
  std::vector<std::pair<int32_t, float>> Answers() {
    std::vector<std::pair<int32_t, float>> answers;
    for (const int32_t length : {1, 9, 37}) answers.push_back(Answer(length));
    return answers;
  }
  std::vector<int32_t> Ladder() const {
    std::vector<int32_t> tokens;
    const ModelStats stats = engine->Stats()[0];
    for (const BucketStats& bucket : stats.buckets) {
      EXPECT_EQ(bucket.in_ladder, bucket.ready);
      if (bucket.in_ladder) tokens.push_back(bucket.bucket.tokens);
    }
    return tokens;
  }
  simt::SimtDevice& device() const { return *device_; }
  void GiveBack() { taken_ = nullptr; }

  FakeClock clock;
  RecordingObserver observer;
  const std::shared_ptr<const Model> model = RandomModel(TinyConfig(1), 3);

 private:
  std::optional<TimedBackend> backend_;
  simt::SimtDevice* device_ = nullptr;
  DeviceMemory taken_;  // released before the backend ends

 public:
  std::unique_ptr<Engine> engine;  // ends before the backend
  absl::Status status;             // the result of Serve
};

// The accounted memory equals the memory taken from the device, with KV pages in all of the rest.
TEST(CudaMemoryTest, AccountedMemoryEqualsTheMemoryTaken) {
  constexpr int64_t kGraphs = 60;
  const Served full(kGraphs);
  ASSERT_TRUE(full.status.ok()) << full.status;
  const ModelStats stats = full.engine->Stats()[0];
  const int64_t taken = kGraphs * kGraph + kGraph / 2 - full.device().FreeMemory();
  const int64_t account = stats.weight_bytes + stats.plan_memory_bytes +
                          stats.slot_memory.activations + stats.slot_memory.graphs +
                          stats.slot_memory.kv;
  RecordProperty("account_bytes", absl::StrCat(account));
  RecordProperty("taken_bytes", absl::StrCat(taken));
  EXPECT_NEAR(static_cast<double>(account) / static_cast<double>(taken), 1, 0.05)
      << "the account has " << account << " bytes, the device lacks " << taken << ": weights "
      << stats.weight_bytes << ", activations " << stats.slot_memory.activations << ", KV "
      << stats.slot_memory.kv << ", plans " << stats.plan_memory_bytes;
}

// The largest bucket is captured first, then the others from the smallest on. If there is no memory
// for the graph of the largest bucket, or even of the head, their kernels are launched one by one.
TEST(CudaMemoryTest, AtTheStartTheLadderHasTheBucketsThatMemoryAllows) {
  Served all(10);
  ASSERT_TRUE(all.status.ok()) << all.status;
  const std::vector<int32_t> whole = all.Ladder();
  ASSERT_GE(whole.size(), 3u);
  const auto expected = all.Answers();
  EXPECT_TRUE(all.observer.notices().empty());
  for (int64_t graphs = 0; graphs < std::ssize(whole) + kHeadGraphs; ++graphs) {
    SCOPED_TRACE(::testing::Message() << "room for " << graphs << " graphs");
    Served served(graphs);
    ASSERT_TRUE(served.status.ok()) << served.status;
    const bool eager = graphs <= kHeadGraphs;
    const int64_t smaller = eager ? 0 : graphs - kHeadGraphs - 1;
    std::vector<int32_t> left(whole.begin(), whole.begin() + smaller);
    left.push_back(whole.back());
    EXPECT_EQ(served.Ladder(), left);
    EXPECT_THAT(served.observer.notices(), ::testing::SizeIs(eager ? 2 : 1));
    for (const std::string& notice : served.observer.notices()) {
      EXPECT_THAT(notice, HasSubstr("no device memory for a captured graph"));
    }
    EXPECT_EQ(served.Answers(), expected);
    for (const BatchTrace& batch : served.observer.batches()) {
      EXPECT_EQ(batch.lookup, eager ? Lookup::kMissMemory : Lookup::kHit);
    }
  }
}

// The limit applies to the graphs of buckets on the device, not to the head's graphs.
TEST(CudaMemoryTest, TheMemoryLimitBoundsTheGraphsOfTheLadder) {
  const std::vector<int32_t> whole = Served(10).Ladder();
  for (int64_t graphs = 1; graphs <= std::ssize(whole); ++graphs) {
    const int64_t limit = graphs * kGraph + kGraph / 2;
    Served served(10, /*taken_graphs=*/0, limit);
    ASSERT_TRUE(served.status.ok()) << served.status;
    EXPECT_EQ(std::ssize(served.Ladder()), graphs) << "limit of " << limit;
    const ModelStats stats = served.engine->Stats()[0];
    EXPECT_GE(stats.plan_memory_bytes, graphs * kGraph);
    EXPECT_LE(stats.plan_memory_bytes, limit);
  }
}

// KV pages take the memory that weights and activations leave, except the reserve for graphs.
TEST(CudaMemoryTest, KvPagesTakeTheRemainingMemory) {
  const Served served(10);
  const ModelStats stats = served.engine->Stats()[0];
  const DeviceInfo& device = served.device().info();
  const int64_t before = device.memory_bytes - stats.weight_bytes - stats.slot_memory.activations;
  const int64_t most = before / 100 * 90;
  EXPECT_LE(stats.slot_memory.kv, most);
  const int64_t held = device.memory_bytes - served.device().FreeMemory();
  const int64_t told = stats.weight_bytes + stats.slot_memory.activations + stats.slot_memory.kv +
                       (std::ssize(served.Ladder()) + kHeadGraphs) * kGraph;
  EXPECT_GE(held, told);
  EXPECT_LE(held, told + (1 << 18)) << "apart from the shared memory of the emulator's blocks";
  EXPECT_GT(stats.slot_memory.pinned, 0);
}

// A plan that could not be captured at the start is captured when a review finds memory.
TEST(CudaMemoryTest, AReviewCapturesTheLargestBucketOnceThereIsMemory) {
  Served served(6);
  ASSERT_TRUE(served.status.ok()) << served.status;
  const auto expected = served.Answers();
  Served starved(6, /*taken_graphs=*/3);
  ASSERT_TRUE(starved.status.ok()) << starved.status;
  EXPECT_EQ(starved.Answers(), expected);
  EXPECT_EQ(starved.observer.batches().back().lookup, Lookup::kMissMemory);
  starved.GiveBack();
  for (int i = 0; i < 8; ++i) (void)starved.Answer(21);
  ASSERT_TRUE(starved.engine->Review(starved.model->name, "", /*force=*/true).ok());
  EXPECT_EQ(starved.Answers(), expected);
  EXPECT_EQ(starved.observer.batches().back().lookup, Lookup::kHit);
}

TEST(CudaNoticeTest, TheObserverReceivesTheModelsNotices) {
  FakeClock clock;
  RecordingObserver observer;
  TimedBackend backend(
      MakeCudaBackend(simt::MakeSimtDevice({.dense = {simt::SimtDense::kInvariant}}),
                      {.dtype = "f32", .dense = "cublaslt"})
          .value(),
      &clock);
  const auto engine = Engine::Create(SmallLadder(), &backend, &clock, &observer);
  ASSERT_TRUE(engine->Serve(RandomModel(TinyConfig(1), 3)).ok());
  EXPECT_THAT(observer.notices(),
              ::testing::ElementsAre(HasSubstr("there is no table of algorithms for SIMT")));
}

TEST(CudaMemoryTest, ServeFailsWithoutMemoryForWeightsOrSlots) {
  const auto model = RandomModel(TinyConfig(1), 3);
  const int64_t weights = 30 << 10, slots = 3 << 20;
  for (const int64_t bytes : {weights, slots}) {
    FakeClock clock;
    RecordingObserver observer;
    auto device = simt::MakeSimtDevice({.memory_bytes = bytes});
    const auto& watched = *device;
    const auto backend =
        MakeCudaBackend(std::move(device), {.dtype = "f32", .dense = "own"}).value();
    EngineOptions options = SmallLadder();
    options.kv.memory_bytes = 4 << 20;
    const auto engine = Engine::Create(options, backend.get(), &clock, &observer);
    const absl::Status status = engine->Serve(model);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(watched.captures(), 0);
    EXPECT_EQ(watched.FreeMemory(), bytes) << "all memory is released";
  }
}

// The traffic has two lengths, so a review adds buckets for them. `room` is the number of graphs
// that still fit into memory.
TEST(CudaMemoryTest, AReviewWithoutMemoryLeavesTheLadderUnchanged) {
  for (const int64_t room : {0, 1}) {
    SCOPED_TRACE(::testing::Message() << "room for " << room);
    Served served(9);
    ASSERT_TRUE(served.status.ok()) << served.status;
    const auto expected = served.Answers();
    for (int i = 0; i < 8; ++i) {
      (void)served.Answer(21);
      (void)served.Answer(37);
    }
    const std::vector<int32_t> before = served.Ladder();
    DeviceMemory taken =
        served.device()
            .Allocate(static_cast<size_t>(served.device().FreeMemory() - room * kGraph))
            .value();
    const int64_t captures = served.device().captures();
    std::vector<std::shared_ptr<RecordingSink>> meanwhile;
    for (int i = 0; i < 3; ++i) meanwhile.push_back(served.Submit(kLongest));
    const auto report = served.engine->Review(served.model->name, "", /*force=*/true);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_FALSE(report->changed);
    EXPECT_EQ(report->reason,
              "a plan could not be prepared: no device memory for a captured graph");
    EXPECT_EQ(served.device().captures(), captures + room);
    for (const auto& sink : meanwhile) {
      sink->AwaitDone();
      EXPECT_TRUE(sink->status().ok()) << sink->status();
    }
    EXPECT_EQ(served.Ladder(), before);
    EXPECT_EQ(served.Answers(), expected);
    EXPECT_EQ(served.device().FreeMemory(), room * kGraph)
        << "the memory of the captures is released";
    EXPECT_EQ(served.observer.batches().back().lookup, Lookup::kHit);
  }
}

}  // namespace
}  // namespace sluice::testing
