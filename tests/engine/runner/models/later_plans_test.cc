#include "engine/runner/models/later_plans.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An engine that is ready with buckets of 8 and 128 tokens. The buckets of 16, 32 and 64 tokens are
// prepared once the gate is open.
class LaterPlansTest : public ::testing::Test {
 protected:
  // `error` is the result of preparing 16 tokens.
  void Serve(const absl::Status& error = absl::OkStatus(), int64_t memory_limit_bytes = 0) {
    backend_.OnPrepare([this, error](const Bucket& bucket) {
      if (bucket.tokens == 8 || bucket.tokens == 128) return absl::OkStatus();
      gate_.Pass();
      return bucket.tokens == 16 ? error : absl::OkStatus();
    });
    EngineOptions options = SmallOptions();
    options.batch.max_batch_tokens = 128;
    options.ladder.warm_up_us = 0;
    options.ladder.memory_limit_bytes = memory_limit_bytes;
    engine_ = Engine::Create(options, &backend_, &clock_, &observer_);
    ASSERT_TRUE(engine_->Serve(model_).ok());
    gate_.AwaitArrivals(1);
  }

  // Lets the plans be prepared and waits for them.
  void Finish() {
    gate_.Open();
    ASSERT_TRUE(engine_->Review("fake", "", /*force=*/false).ok());
  }

  // Computes a prompt and returns the trace of its step.
  BatchTrace Run(int32_t length) {
    const std::vector<int32_t> prompt(length, ++prompts_);  // no prefix is reused
    const auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(engine_->Submit(RequestOf(model_, {prompt}, 1), sink, clock_.Now()).ok());
    sink->AwaitDone();
    EXPECT_EQ(sink->row_tokens(0), Greedy(prompt, 1));
    return observer_.batches().back();
  }

  std::vector<int32_t> Prepared() const {
    std::vector<int32_t> tokens;
    for (const PlanTrace& plan : observer_.plans()) tokens.push_back(plan.bucket.tokens);
    return tokens;
  }

  // Returns the buckets of the ladder, and whether all of them are ready.
  std::vector<int32_t> Ladder(bool* ready) const {
    std::vector<int32_t> tokens;
    *ready = true;
    const std::vector<ModelStats> stats = engine_->Stats();
    for (const BucketStats& bucket : stats.front().buckets) {
      if (!bucket.in_ladder) continue;
      tokens.push_back(bucket.bucket.tokens);
      *ready &= bucket.ready;
    }
    return tokens;
  }

  FakeClock clock_;
  RecordingObserver observer_;
  FakeBackend backend_;
  const std::shared_ptr<const Model> model_ = FakeModel(FakeConfig());
  Gate gate_;
  std::unique_ptr<Engine> engine_;
  int32_t prompts_ = 0;
  bool ready_ = false;
};

TEST_F(LaterPlansTest, ServesDuringPreparationAndPreparesRequestedBucketsFirst) {
  Serve();
  EXPECT_THAT(Ladder(&ready_), ElementsAre(8, 16, 32, 64, 128));
  EXPECT_FALSE(ready_);
  EXPECT_EQ(Run(7).lookup, Lookup::kHit);
  for (const int32_t length : {40, 40, 20}) {
    const BatchTrace batch = Run(length);
    EXPECT_EQ(batch.bucket.tokens, 128);
    EXPECT_EQ(batch.lookup, Lookup::kMissNotPrepared);
  }
  Finish();
  EXPECT_THAT(Prepared(), ElementsAre(128, 8, 16, 64, 32)) << "16 was already in progress";
  EXPECT_THAT(Ladder(&ready_), ElementsAre(8, 16, 32, 64, 128));
  EXPECT_TRUE(ready_);
  const BatchTrace batch = Run(40);
  EXPECT_EQ(batch.bucket.tokens, 64);
  EXPECT_EQ(batch.lookup, Lookup::kHit);
}

TEST_F(LaterPlansTest, WithoutMemoryAwaitedBucketsAreRemovedFromTheLadder) {
  Serve(absl::ResourceExhaustedError("no memory"));
  Finish();
  EXPECT_THAT(Ladder(&ready_), ElementsAre(8, 128));
  EXPECT_TRUE(ready_);
  EXPECT_THAT(observer_.notices(), ElementsAre(HasSubstr("no memory")));
  EXPECT_EQ(Run(12).lookup, Lookup::kHit);
}

// A plan takes 10 bytes per token: 8, 16 and 128 tokens take 1520.
TEST_F(LaterPlansTest, FreesThePlanThatExceedsTheLimit) {
  Serve(absl::OkStatus(), /*memory_limit_bytes=*/1520 + 319);
  Finish();
  EXPECT_THAT(Ladder(&ready_), ElementsAre(8, 16, 128));
  EXPECT_EQ(engine_->Stats().front().plan_memory_bytes, 1520);
  EXPECT_EQ(engine_->Stats().front().ladder_changes.evicted, 2);
  EXPECT_THAT(observer_.notices(), ElementsAre(HasSubstr("memory_limit_bytes")));
  EXPECT_THAT(engine_->Stats().front().memory_limit_effect, HasSubstr("left out 2 of 5 buckets"));
  backend_.AwaitLivePlans(3);
}

TEST_F(LaterPlansTest, AFailedPreparationDoesNotAffectOtherPlans) {
  Serve(absl::InternalError("broken"));
  Finish();
  EXPECT_THAT(Ladder(&ready_), ElementsAre(8, 32, 64, 128));
  EXPECT_TRUE(ready_);
  EXPECT_THAT(observer_.notices(), ElementsAre(HasSubstr("broken")));
  EXPECT_EQ(Run(12).bucket.tokens, 32);
}

TEST_F(LaterPlansTest, TheEngineCanEndBeforeTheyArePrepared) {
  Serve();
  gate_.Open();
  engine_ = nullptr;
  EXPECT_EQ(backend_.live_plans(), 0);
  EXPECT_THAT(observer_.notices(), IsEmpty());
}

}  // namespace
}  // namespace sluice
