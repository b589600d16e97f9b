#include "engine/plans/plan_cache.h"

#include <array>
#include <atomic>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/support/recording_observer.h"

namespace sluice {
namespace {

constexpr Bucket kSmall{.tokens = 16, .sequences = 4};
constexpr Bucket kMiddle{.tokens = 64, .sequences = 8};
constexpr Bucket kLarge{.tokens = 256, .sequences = 8};

class PlanCacheTest : public ::testing::Test {
 protected:
  explicit PlanCacheTest(const FakeBackend::Options& options = {}) : backend_(options) {}

  // Looks up a plan for a step that fills `wanted`.
  static PlanCache::Found Find(PlanCache::Reader* reader, const Bucket& wanted,
                               int32_t num_top = 0) {
    return reader->Find(wanted, {.size = {.tokens = wanted.tokens,
                                          .sequences = wanted.sequences,
                                          .longest = wanted.positions},
                                 .num_top = num_top});
  }

  FakeClock clock_;
  RecordingObserver observer_;
  FakeBackend backend_;
  std::shared_ptr<const Model> model_ = FakeModel(FakeConfig());
  std::unique_ptr<ExecutableModel> executable_ = *backend_.Load(model_);
  std::unique_ptr<PlanCache> cache_ =
      std::make_unique<PlanCache>(model_.get(), executable_.get(), &clock_, &observer_);
};

class GuardedPlanCacheTest : public PlanCacheTest {
 protected:
  GuardedPlanCacheTest() : PlanCacheTest({.top_needs_tokens = kMiddle.tokens}) {}
};

// The eager plan counts as a miss, and is replaced by the captured plan once there is memory.
TEST_F(PlanCacheTest, FindsAnEagerPlanIfThereIsNoMemory) {
  backend_.OnPrepare([](const Bucket&) { return absl::ResourceExhaustedError("full"); });
  PlanCache::Reader reader(cache_.get());
  EXPECT_TRUE(absl::IsResourceExhausted(cache_->Prepare(kLarge)));
  EXPECT_EQ(Find(&reader, kLarge).plan, nullptr);
  ASSERT_TRUE(cache_->PublishEager(kLarge).ok());
  for (int i = 0; i < 2; ++i) {
    const PlanCache::Found found = Find(&reader, kLarge);
    ASSERT_NE(found.plan, nullptr);
    EXPECT_TRUE(found.plan->plan().eager());
    EXPECT_EQ(found.lookup, Lookup::kMissMemory);
    EXPECT_TRUE(absl::IsResourceExhausted(cache_->Prepare(kLarge)))
        << "tried again without success";
  }
  backend_.OnPrepare(nullptr);
  EXPECT_TRUE(cache_->Prepare(kLarge).ok());
  EXPECT_FALSE(Find(&reader, kLarge).plan->plan().eager());
  EXPECT_EQ(Find(&reader, kLarge).lookup, Lookup::kHit);
  EXPECT_EQ(backend_.live_plans(), 1);
}

TEST_F(PlanCacheTest, FindsTheRequestedOrTheNextLargerReadyPlan) {
  PlanCache::Reader reader(cache_.get());
  EXPECT_EQ(Find(&reader, kSmall).plan, nullptr);
  EXPECT_EQ(Find(&reader, kSmall).lookup, Lookup::kMissOverCapacity);

  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  PlanCache::Found found = Find(&reader, kSmall);
  ASSERT_NE(found.plan, nullptr);
  EXPECT_EQ(found.plan->plan().bucket(), kLarge);
  EXPECT_EQ(found.lookup, Lookup::kMissNotPrepared);

  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  found = Find(&reader, kSmall);
  EXPECT_EQ(found.plan->plan().bucket(), kSmall);
  EXPECT_EQ(found.lookup, Lookup::kHit);
  EXPECT_EQ(Find(&reader, kMiddle).plan->plan().bucket(), kLarge);
  EXPECT_EQ(Find(&reader, {.tokens = 16, .sequences = 5}).plan->plan().bucket(), kLarge);
  EXPECT_EQ(Find(&reader, {.tokens = 257, .sequences = 1}).plan, nullptr);
}

TEST_F(PlanCacheTest, AwaitedBucketsAreOrderedByTheirMissedLookups) {
  const Bucket huge{.tokens = 512, .sequences = 8};
  ASSERT_TRUE(cache_->Prepare(huge).ok());
  cache_->Await(std::vector<Bucket>{kSmall, kMiddle, kLarge});
  PlanCache::Reader reader(cache_.get());
  EXPECT_EQ(cache_->MostRequested(), kSmall) << "the smallest if several are equal";
  EXPECT_EQ(Find(&reader, kMiddle).lookup, Lookup::kMissNotPrepared);
  for (int i = 0; i < 2; ++i) {
    const PlanCache::Found found = Find(&reader, kLarge);
    EXPECT_EQ(found.plan->plan().bucket(), huge);
    EXPECT_EQ(found.lookup, Lookup::kMissNotPrepared);
  }
  EXPECT_EQ(cache_->Stats().size(), 4u);
  EXPECT_FALSE(cache_->Stats().front().ready);
  EXPECT_EQ(cache_->MostRequested(), kLarge);
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  EXPECT_EQ(Find(&reader, kLarge).lookup, Lookup::kHit);
  EXPECT_EQ(cache_->MostRequested(), kMiddle);
  cache_->Withdraw(kMiddle);
  EXPECT_EQ(Find(&reader, kMiddle).lookup, Lookup::kMissEvicted);
  backend_.OnPrepare([](const Bucket&) { return absl::InternalError("cannot be built"); });
  EXPECT_EQ(cache_->Awaited(), std::vector<Bucket>{kSmall});
  EXPECT_FALSE(cache_->Prepare(kSmall).ok());
  EXPECT_EQ(cache_->MostRequested(), std::nullopt) << "a failed bucket is no longer awaited";
}

TEST_F(PlanCacheTest, PreparesEachBucketOnceAndReportsIt) {
  backend_.OnPrepare([this](const Bucket&) {
    clock_.Advance(std::chrono::milliseconds(70));
    return absl::OkStatus();
  });
  for (int i = 0; i < 3; ++i) {
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
  backend_.OnPrepare([](const Bucket&) { return absl::InternalError("cannot be built"); });
  EXPECT_EQ(cache_->Prepare(kSmall).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(cache_->Prepare(kSmall).code(), absl::StatusCode::kInternal);
  ASSERT_EQ(observer_.plans().size(), 1u);
  EXPECT_FALSE(observer_.plans()[0].ok);
  ASSERT_EQ(cache_->Stats().size(), 1u);
  EXPECT_FALSE(cache_->Stats()[0].ready);
}

TEST_F(PlanCacheTest, AMissingPlanIsPreparedOnceThereIsMemory) {
  backend_.OnPrepare([](const Bucket&) { return absl::ResourceExhaustedError("no memory"); });
  EXPECT_EQ(cache_->Prepare(kSmall).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(cache_->Stats()[0].ready);
  backend_.OnPrepare([](const Bucket&) { return absl::OkStatus(); });
  EXPECT_TRUE(cache_->Prepare(kSmall).ok());
  ASSERT_EQ(cache_->Stats().size(), 1u);
  EXPECT_TRUE(cache_->Stats()[0].ready);
}

TEST_F(PlanCacheTest, LookupsContinueWhileAPlanIsPrepared) {
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  Gate gate;
  backend_.OnPrepare([&](const Bucket&) {
    gate.Pass();
    return absl::OkStatus();
  });
  std::thread preparing([&] { EXPECT_TRUE(cache_->Prepare(kSmall).ok()); });
  gate.AwaitArrivals(1);
  PlanCache::Reader reader(cache_.get());
  const PlanCache::Found found = Find(&reader, kSmall);
  EXPECT_EQ(found.plan->plan().bucket(), kLarge);
  EXPECT_EQ(found.lookup, Lookup::kMissNotPrepared);
  gate.Open();
  preparing.join();
  EXPECT_EQ(Find(&reader, kSmall).lookup, Lookup::kHit);
}

TEST_F(PlanCacheTest, FallsBackToTheSmallestRectangleThatFits) {
  const Bucket wide = Bucket::Padded(2, 64), tall = Bucket::Padded(8, 16);
  ASSERT_TRUE(cache_->Prepare(wide).ok());
  ASSERT_TRUE(cache_->Prepare(tall).ok());
  ASSERT_TRUE(cache_->Prepare(Bucket::Padded(8, 32)).ok());
  PlanCache::Reader reader(cache_.get());
  EXPECT_EQ(Find(&reader, tall).lookup, Lookup::kHit);
  EXPECT_EQ(Find(&reader, Bucket::Padded(2, 40)).plan->plan().bucket(), wide);
  EXPECT_EQ(Find(&reader, Bucket::Padded(4, 20)).plan->plan().bucket(), Bucket::Padded(8, 32));
  EXPECT_EQ(Find(&reader, Bucket::Padded(4, 40)).lookup, Lookup::kMissOverCapacity);
}

TEST_F(PlanCacheTest, FallsBackToTheCheapestPlan) {
  constexpr Bucket kHuge{.tokens = 512, .sequences = 8};
  for (const Bucket& bucket : {kMiddle, kLarge, kHuge}) ASSERT_TRUE(cache_->Prepare(bucket).ok());
  PlanCache::Reader reader(cache_.get());
  const auto fallback = [&](std::map<int32_t, double> costs) {
    const auto cost = [&](const Bucket& bucket) { return costs.at(bucket.tokens); };
    return reader.Find(kSmall, {.size = {.tokens = 16, .sequences = 4}}, cost)
        .plan->plan()
        .bucket();
  };
  EXPECT_EQ(fallback({{64, 2}, {256, 1}, {512, 3}}), kLarge);
  EXPECT_EQ(fallback({{64, 2}, {256, 2}, {512, 1}}), kHuge);
  EXPECT_EQ(fallback({{64, 0}, {256, 0}, {512, 0}}), kMiddle);  // no costs were measured
}

TEST_F(GuardedPlanCacheTest, AStepThatAGuardRefusesRunsOnAPlanThatAcceptsIt) {
  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  PlanCache::Reader reader(cache_.get());
  EXPECT_EQ(Find(&reader, kSmall).lookup, Lookup::kHit);
  PlanCache::Found found = Find(&reader, kSmall, /*num_top=*/3);
  EXPECT_EQ(found.plan, nullptr);
  EXPECT_EQ(found.lookup, Lookup::kMissGuard);
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  found = Find(&reader, kSmall, /*num_top=*/3);
  EXPECT_EQ(found.plan->plan().bucket(), kLarge);
  EXPECT_EQ(found.lookup, Lookup::kMissGuard);
}

TEST_F(PlanCacheTest, AWithdrawnBucketKeepsItsHistoryAndCanReturn) {
  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  PlanCache::Reader reader(cache_.get());
  BatchTrace batch{};
  batch.useful_tokens = 10;
  Find(&reader, kSmall).plan->use().Record(batch);
  cache_->Withdraw(kSmall);
  EXPECT_EQ(Find(&reader, kSmall).lookup, Lookup::kMissEvicted);
  ASSERT_EQ(cache_->Stats().size(), 2u);
  EXPECT_FALSE(cache_->Stats()[0].ready);
  EXPECT_EQ(cache_->Stats()[0].memory_bytes, 0);
  EXPECT_EQ(cache_->Stats()[0].useful_tokens, 10);
  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  Find(&reader, kSmall).plan->use().Record(batch);
  EXPECT_EQ(cache_->Stats()[0].useful_tokens, 20);
  EXPECT_EQ(observer_.plans().size(), 3u);
}

TEST_F(PlanCacheTest, ForgetsTheLeastRecentlyUsedWithdrawnBucket) {
  const auto bucket = [](size_t i) {
    return Bucket{.tokens = 1 + static_cast<int32_t>(i), .sequences = 1};
  };
  PlanCache::Reader reader(cache_.get());
  for (size_t i = 0; i <= PlanCache::kMaxWithdrawn; ++i) {
    ASSERT_TRUE(cache_->Prepare(bucket(i)).ok());
    BatchTrace batch{};
    batch.start = clock_.Now() - std::chrono::seconds(i == 7 ? 1 : 0);
    batch.useful_tokens = batch.computed_tokens = 1;
    batch.sequences = 1;
    batch.replay = std::chrono::milliseconds(2);
    Find(&reader, bucket(i)).plan->use().Record(batch);
  }
  for (size_t i = 0; i <= PlanCache::kMaxWithdrawn; ++i) cache_->Withdraw(bucket(i));
  BucketStats forgotten;
  const std::vector<BucketStats> stats = cache_->Stats(&forgotten);
  EXPECT_EQ(stats.size(), PlanCache::kMaxWithdrawn);
  for (const BucketStats& left : stats) EXPECT_NE(left.bucket, bucket(7));
  EXPECT_EQ(forgotten.batches, 1);
  EXPECT_EQ(forgotten.hits, 1);
  EXPECT_EQ(forgotten.useful_tokens, 1);
  EXPECT_EQ(forgotten.bucket_tokens, bucket(7).tokens);
  EXPECT_EQ(forgotten.replay, std::chrono::milliseconds(2));
}

// Buckets come and go, and the sums of the counts never fall: a bucket keeps its counts when it
// leaves the ladder, and a forgotten bucket moves them to the sums of forgotten buckets.
TEST_F(PlanCacheTest, SumsOfCountsAreExactWhileBucketsComeAndGo) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  PlanCache::Reader reader(cache_.get());
  BucketStats total;
  std::set<int32_t> published;
  for (int step = 0; step < 2000; ++step) {
    const Bucket bucket{.tokens = 1 + static_cast<int32_t>(random() % 300), .sequences = 1};
    if (published.insert(bucket.tokens).second) {
      ASSERT_TRUE(cache_->Prepare(bucket).ok());
    } else if (random() % 2 == 0) {
      published.erase(bucket.tokens);
      cache_->Withdraw(bucket);
      continue;
    }
    clock_.Advance(std::chrono::milliseconds(1));
    BatchTrace batch{};
    batch.useful_tokens = static_cast<int64_t>(random() % bucket.tokens);
    batch.computed_tokens = bucket.tokens;
    batch.sequences = 1;
    batch.start = clock_.Now();
    batch.replay = std::chrono::microseconds(random() % 10'000'000);
    batch.lookup = Lookup{static_cast<int>(random() % kLookups)};
    Find(&reader, bucket).plan->use().Record(batch);
    ++total.batches;
    total.hits += batch.lookup == Lookup::kHit ? 1 : 0;
    total.useful_tokens += batch.useful_tokens;
    total.computed_tokens += bucket.tokens;
    total.replay += batch.replay;
  }
  BucketStats sum;
  std::vector<BucketStats> all = cache_->Stats(&sum);
  EXPECT_GT(sum.batches, 0) << "no bucket was forgotten";
  int64_t misses = 0, replays = 0;
  all.push_back(std::exchange(sum, {}));
  for (const BucketStats& bucket : all) {
    sum.batches += bucket.batches;
    sum.hits += bucket.hits;
    sum.useful_tokens += bucket.useful_tokens;
    sum.computed_tokens += bucket.computed_tokens;
    sum.bucket_tokens += bucket.bucket_tokens;
    sum.replay += bucket.replay;
    misses = std::accumulate(bucket.misses.begin(), bucket.misses.end(), misses);
    replays = std::accumulate(bucket.replays.begin(), bucket.replays.end(), replays);
  }
  EXPECT_EQ(sum.batches, total.batches);
  EXPECT_EQ(sum.hits, total.hits);
  EXPECT_EQ(misses, total.batches - total.hits);
  EXPECT_EQ(replays, total.batches);
  EXPECT_EQ(sum.useful_tokens, total.useful_tokens);
  EXPECT_EQ(sum.computed_tokens, total.computed_tokens);
  EXPECT_EQ(sum.bucket_tokens, total.computed_tokens) << "each batch computed its whole bucket";
  EXPECT_EQ(sum.replay, total.replay);
}

TEST_F(PlanCacheTest, AWithdrawnPlanServesItsReaderUntilTheNextCall) {
  ASSERT_TRUE(cache_->Prepare(kSmall).ok());
  ASSERT_TRUE(cache_->Prepare(kLarge).ok());
  PlanCache::Reader reader(cache_.get());
  const PlanCache::Found found = Find(&reader, kSmall);
  cache_->Withdraw(kSmall);
  EXPECT_TRUE(reader.stale());
  EXPECT_EQ(found.plan->plan().bucket(), kSmall);
  EXPECT_EQ(Find(&reader, kSmall).plan->plan().bucket(), kLarge);
  EXPECT_FALSE(reader.stale());
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
  batch.start = clock_.Now();
  batch.lookup = Lookup::kHit;
  batch.replay = std::chrono::milliseconds(1);  // the upper bound of an interval belongs to it
  Find(&reader, kSmall).plan->use().Record(batch);
  batch.lookup = Lookup::kMissNotPrepared;
  batch.replay = std::chrono::seconds(5);
  Find(&reader, kSmall).plan->use().Record(batch);
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
  EXPECT_EQ(stats[0].misses[static_cast<int>(Lookup::kMissNotPrepared)], 1);
  EXPECT_EQ(stats[0].replay, std::chrono::milliseconds(5001));
  EXPECT_EQ(stats[0].replays, (std::array<int64_t, 9>{0, 1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(stats[0].last_used, clock_.Now());
  EXPECT_EQ(stats[1].last_used, MonoTime());
  EXPECT_EQ(stats[1].batches, 0);
}

// Readers see plans appear one by one while two threads prepare and withdraw them. A found plan
// always fits, and a bucket's own plan is found once its preparation has ended.
TEST_F(PlanCacheTest, ReadersSeeCorrectPlansDuringChanges) {
  ASSERT_TRUE(cache_->Prepare({.tokens = 1000, .sequences = 8}).ok());
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      PlanCache::Reader reader(cache_.get());
      while (!stop) {
        const Bucket wanted{.tokens = 1 + static_cast<int32_t>(random() % 999), .sequences = 8};
        const PlanCache::Found found = Find(&reader, wanted);
        ASSERT_NE(found.plan, nullptr);
        const Bucket& bucket = found.plan->plan().bucket();
        ASSERT_TRUE(bucket.Fits({wanted.tokens, wanted.sequences, 1}));
        ASSERT_EQ(found.lookup == Lookup::kHit, bucket == wanted);
      }
    });
  }
  std::thread other([&] {
    for (int32_t tokens = 900; tokens > 0; tokens -= 7) {
      ASSERT_TRUE(cache_->Prepare({.tokens = tokens, .sequences = 7}).ok());
    }
  });
  PlanCache::Reader reader(cache_.get());
  for (int32_t tokens = 3; tokens < 900; tokens += 30) {
    const Bucket bucket{.tokens = tokens, .sequences = 8};
    ASSERT_TRUE(cache_->Prepare(bucket).ok());
    EXPECT_EQ(Find(&reader, bucket).lookup, Lookup::kHit);
    if (tokens % 60 == 3) cache_->Withdraw(bucket);
  }
  other.join();
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sluice
