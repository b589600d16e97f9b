#include "engine/plan_cache.h"

#include <atomic>
#include <random>
#include <thread>

#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_observer.h"

namespace sluice {
namespace {

constexpr Bucket kSmall{.tokens = 16, .sequences = 4};
constexpr Bucket kMiddle{.tokens = 64, .sequences = 8};
constexpr Bucket kLarge{.tokens = 256, .sequences = 8};

class PlanCacheTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  RecordingObserver observer_;
  FakeBackend backend_;
  std::shared_ptr<const Model> model_ = FakeModel(FakeConfig());
  std::unique_ptr<ExecutableModel> executable_ = *backend_.Load(model_);
  std::unique_ptr<PlanCache> cache_ =
      std::make_unique<PlanCache>(model_.get(), executable_.get(), &clock_, &observer_);
};

TEST_F(PlanCacheTest, FindsTheWantedOrTheNextLargerReadyPlan) {
  PlanCache::Reader reader(cache_.get());
  EXPECT_EQ(reader.Find(kSmall).plan, nullptr);
  EXPECT_EQ(reader.Find(kSmall).lookup, Lookup::kMissOverCapacity);

  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  PlanCache::Found found = reader.Find(kSmall);
  ASSERT_NE(found.plan, nullptr);
  EXPECT_EQ(found.plan->plan().bucket(), kLarge);
  EXPECT_EQ(found.lookup, Lookup::kMissNotCaptured);

  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  found = reader.Find(kSmall);
  EXPECT_EQ(found.plan->plan().bucket(), kSmall);
  EXPECT_EQ(found.lookup, Lookup::kHit);
  EXPECT_EQ(reader.Find(kMiddle).plan->plan().bucket(), kLarge);
  EXPECT_EQ(reader.Find({.tokens = 16, .sequences = 5}).plan->plan().bucket(), kLarge);
  EXPECT_EQ(reader.Find({.tokens = 257, .sequences = 1}).plan, nullptr);
}

TEST_F(PlanCacheTest, PreparesEachBucketOnceAndReportsIt) {
  backend_.OnPrepare([this](const Bucket&) {
    clock_.Advance(std::chrono::milliseconds(70));
    return absl::OkStatus();
  });
  for (int i = 0; i < 3; ++i) {
    cache_->PrepareLater(kSmall);
    ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  }
  const std::vector<PlanTrace> plans = observer_.plans();
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].model, model_.get());
  EXPECT_EQ(plans[0].bucket, kSmall);
  EXPECT_TRUE(plans[0].ok);
  EXPECT_EQ(plans[0].duration, std::chrono::milliseconds(70));
  EXPECT_EQ(plans[0].memory_bytes, 160);
  EXPECT_EQ(cache_->memory_bytes(), 160);
}

TEST_F(PlanCacheTest, AFailedPreparationIsReportedAndNotTriedAgain) {
  backend_.OnPrepare([](const Bucket&) { return absl::ResourceExhaustedError("no memory"); });
  EXPECT_EQ(cache_->Prepare(kSmall).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache_->Prepare(kSmall).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(observer_.plans().size(), 1u);
  EXPECT_FALSE(observer_.plans()[0].ok);
  ASSERT_EQ(cache_->Stats().size(), 1u);
  EXPECT_FALSE(cache_->Stats()[0].ready);
}

TEST_F(PlanCacheTest, LookupsGoOnWhileAPlanIsPrepared) {
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  Gate gate;
  backend_.OnPrepare([&](const Bucket&) {
    gate.Pass();
    return absl::OkStatus();
  });
  cache_->PrepareLater(kSmall);
  gate.AwaitArrivals(1);
  PlanCache::Reader reader(cache_.get());
  EXPECT_EQ(reader.Find(kSmall).lookup, Lookup::kMissNotCaptured);
  gate.Open();
  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  EXPECT_EQ(reader.Find(kSmall).lookup, Lookup::kHit);
  cache_.reset();
}

TEST_F(PlanCacheTest, ARemovedPlanServesItsReaderUntilTheNextLookup) {
  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  PlanCache::Reader reader(cache_.get());
  const PlanCache::Found found = reader.Find(kSmall);
  cache_->Remove(kSmall);
  EXPECT_EQ(found.plan->plan().bucket(), kSmall);
  EXPECT_EQ(reader.Find(kSmall).plan->plan().bucket(), kLarge);
  EXPECT_EQ(cache_->memory_bytes(), 2560);
}

TEST_F(PlanCacheTest, CountsBatchesByBucket) {
  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  PlanCache::Reader reader(cache_.get());
  BatchTrace batch{};
  batch.useful_tokens = 10;
  batch.computed_tokens = 12;
  batch.sequences = 3;
  batch.lookup = Lookup::kHit;
  reader.Find(kSmall).plan->Record(batch);
  batch.lookup = Lookup::kMissNotCaptured;
  reader.Find(kSmall).plan->Record(batch);
  const std::vector<BucketStats> stats = cache_->Stats();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[0].bucket, kSmall);
  EXPECT_TRUE(stats[0].ready);
  EXPECT_EQ(stats[0].batches, 2);
  EXPECT_EQ(stats[0].hits, 1);
  EXPECT_EQ(stats[0].useful_tokens, 20);
  EXPECT_EQ(stats[0].computed_tokens, 24);
  EXPECT_EQ(stats[0].bucket_tokens, 32);
  EXPECT_EQ(stats[0].sequences, 6);
  EXPECT_EQ(stats[1].batches, 0);
}

// Readers see plans appear one by one while two threads ask for them and remove some; what they
// find always fits, and a bucket's own plan is found once its preparation was awaited.
TEST_F(PlanCacheTest, PublishesBesideReaders) {
  ASSERT_TRUE(cache_->Prepare({.tokens = 1000, .sequences = 8}).ok());
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      PlanCache::Reader reader(cache_.get());
      while (!stop) {
        const Bucket wanted{.tokens = 1 + static_cast<int32_t>(random() % 999), .sequences = 8};
        const PlanCache::Found found = reader.Find(wanted);
        ASSERT_NE(found.plan, nullptr);
        const Bucket& bucket = found.plan->plan().bucket();
        ASSERT_TRUE(bucket.Fits(wanted.tokens, wanted.sequences));
        ASSERT_EQ(found.lookup == Lookup::kHit, bucket == wanted);
      }
    });
  }
  std::thread other([&] {
    for (int32_t tokens = 900; tokens > 0; tokens -= 7) {
      cache_->PrepareLater({.tokens = tokens, .sequences = 8});
    }
  });
  PlanCache::Reader reader(cache_.get());
  for (int32_t tokens = 3; tokens < 900; tokens += 30) {
    const Bucket bucket{.tokens = tokens, .sequences = 8};
    ASSERT_TRUE(cache_->Prepare(bucket).ok());
    EXPECT_EQ(reader.Find(bucket).lookup, Lookup::kHit);
    if (tokens % 60 == 3) cache_->Remove(bucket);
  }
  other.join();
  stop = true;
  for (std::thread& thread : readers) thread.join();
}

}  // namespace
}  // namespace sluice
