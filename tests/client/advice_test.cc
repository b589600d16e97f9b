#include "client/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/table.h"

namespace sluice::client {
namespace {

using admin::v1::ModelBuckets;
using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

void AddBucket(int32_t tokens, int64_t batches, ModelBuckets* model) {
  auto* use = model->add_buckets();
  use->mutable_bucket()->set_tokens(tokens);
  use->mutable_bucket()->set_rows(8);
  use->set_ready(true);
  use->set_in_ladder(true);
  use->set_batches(batches);
  use->set_memory_bytes(kMiB);
}

// A model without any reason for advice.
ModelBuckets Healthy() {
  ModelBuckets model;
  model.set_policy("packed");
  model.set_strategy("adaptive");
  AddBucket(64, 5000, &model);
  AddBucket(256, 5000, &model);
  model.set_batches(10000);
  model.mutable_last_hour()->set_batches(1000);
  model.mutable_last_hour()->set_hit_rate(0.999);
  model.mutable_last_hour()->set_bucket_fill(0.95);
  model.mutable_last_hour()->set_executed_efficiency(1);
  model.set_shape_entropy_bits(2.5);
  return model;
}

void MakePadded(ModelBuckets* model) {
  model->set_policy("padded_buckets");
  for (auto& use : *model->mutable_buckets()) use.mutable_bucket()->set_positions(8);
}

struct AdviseRow {
  const char* name;
  std::function<void(ModelBuckets*)> spoil;
  std::vector<std::vector<const char*>> words{};  // the words of each advice
};
class AdviseTable : public TableTest<AdviseRow> {};

TEST_P(AdviseTable, NamesTheProblemAndTheRemedy) {
  ModelBuckets model = Healthy();
  row().spoil(&model);
  const std::vector<Advice> advice = Advise(model);
  ASSERT_EQ(advice.size(), row().words.size()) << AdviceText(advice);
  for (size_t i = 0; i < advice.size(); ++i) {
    for (const char* word : row().words[i]) {
      EXPECT_THAT(advice[i].finding + " " + advice[i].action, HasSubstr(word));
    }
  }
}

const AdviseRow kAdviseRows[] = {
    {.name = "AHealthyModelNeedsNoAdvice", .spoil = [](ModelBuckets*) {}},
    {.name = "TooFewBatchesAreReported",
     .spoil = [](ModelBuckets* m) { m->mutable_last_hour()->set_batches(99); },
     .words = {{"99 batches", "100"}}},
    {.name = "APaddedLayoutThatWastesMuchIsNamed",
     .spoil =
         [](ModelBuckets* m) {
           MakePadded(m);
           m->mutable_last_hour()->set_executed_efficiency(0.6);
           m->mutable_last_hour()->set_bucket_fill(0.6);
         },
     .words = {{"40.0%", "padded_buckets", "engine.batch.policy: packed"}}},
    {.name = "APaddedLayoutThatWastesLittleIsNotNamed", .spoil = MakePadded},
    {.name = "MemoryNearTheLimitIsNamed",
     .spoil =
         [](ModelBuckets* m) {
           m->set_memory_limit_bytes(10 * kMiB);
           m->set_ladder_memory_bytes(9 * kMiB);
           m->mutable_ladder_changes()->set_evicted(3);
         },
     .words = {{"9.0 MiB near the limit of 10.0", "3 buckets", "memory_limit_bytes"}}},
    {.name = "MemoryOverTheLimitIsNamed",
     .spoil =
         [](ModelBuckets* m) {
           m->set_memory_limit_bytes(10 * kMiB);
           m->set_ladder_memory_bytes(11 * kMiB);
         },
     .words = {{"exceed", "memory_limit_bytes"}}},
    {.name = "MemoryBelowTheLimitIsNotNamed",
     .spoil =
         [](ModelBuckets* m) {
           m->set_memory_limit_bytes(10 * kMiB);
           m->set_ladder_memory_bytes(8 * kMiB);
         }},
    {.name = "ALowHitRateIsNamed",
     .spoil = [](ModelBuckets* m) { m->mutable_last_hour()->set_hit_rate(0.9); },
     .words = {{"90.0%", "engine.ladder.file"}}},
    {.name = "LowEfficiencyWithoutTrialsNamesNoLadder",
     .spoil =
         [](ModelBuckets* m) {
           m->mutable_last_hour()->set_bucket_fill(0.7);
           m->mutable_last_hour()->set_executed_efficiency(0.7);
         },
     .words = {{"30.0%", "sluice ladder try"}}},
    {.name = "LowEfficiencyIsHarmlessIfOnlyUsedRowsAreComputed",
     .spoil = [](ModelBuckets* m) { m->mutable_last_hour()->set_bucket_fill(0.2); },
     .words = {{"80.0%", "No work is wasted", "Leave the ladder as it is."}}},
    {.name = "SmallBatchesAreNamedAsTheCause",
     .spoil =
         [](ModelBuckets* m) {
           m->mutable_last_hour()->set_bucket_fill(0.1);
           m->mutable_last_hour()->set_executed_efficiency(0.1);
           auto* size = m->add_batch_totals();
           size->set_tokens(1);
           size->set_weight(70);
           size = m->add_batch_totals();
           size->set_tokens(200);
           size->set_weight(30);
         },
     .words = {{"at most 1 tokens", "smallest bucket has 64", "min_tokens"}}},
    {.name = "AnUnusedBucketIsNamed",
     .spoil = [](ModelBuckets* m) { m->mutable_buckets(0)->set_batches(0); },
     .words = {{"64x8", "1.0 MiB", "min_bucket_usage"}}},
    {.name = "AnUnusedSmallBucketIsNotNamed",
     .spoil =
         [](ModelBuckets* m) {
           m->mutable_buckets(0)->set_batches(0);
           m->mutable_buckets(0)->set_memory_bytes(176);
         }},
    {.name = "AnUnusedMaximumIsNotNamed",
     .spoil = [](ModelBuckets* m) { m->mutable_buckets(1)->set_batches(0); }},
    {.name = "AnUnusedWithdrawnBucketIsNotNamed",
     .spoil =
         [](ModelBuckets* m) {
           m->mutable_buckets(0)->set_batches(0);
           m->mutable_buckets(0)->set_in_ladder(false);
         }},
    {.name = "AnUnusedBucketIsNotNamedEarly",
     .spoil =
         [](ModelBuckets* m) {
           m->mutable_buckets(0)->set_batches(0);
           m->set_batches(999);
         }},
    {.name = "SeveralRulesApplyAtOnce",
     .spoil =
         [](ModelBuckets* m) {
           m->mutable_last_hour()->set_hit_rate(0.5);
           m->mutable_last_hour()->set_bucket_fill(0.5);
         },
     .words = {{"hit rate"}, {"Low bucket fill"}}},
};
SLUICE_TABLE(AdviseTable, kAdviseRows);

// The trials of the ladder in use and of another one with the given gain.
StrategyTrials Trials(const std::string& other, double gain, const LadderChoice& choice) {
  StrategyTrials trials;
  trials.arrivals = 400;
  trials.margin = 0.025;
  trials.trials.resize(2);
  trials.trials[0].name = "present";
  trials.trials[1].name = other;
  trials.trials[1].choice = choice;
  trials.trials[1].gain = gain;
  trials.best = gain > trials.margin ? other : "present";
  return trials;
}

TEST(AdviseWithTrials, ProposesTheBestLadderWithItsGain) {
  ModelBuckets model = Healthy();
  model.set_model_name("m");
  model.mutable_last_hour()->set_bucket_fill(0.7);
  model.mutable_last_hour()->set_executed_efficiency(0.7);
  const StrategyTrials trials =
      Trials("geometric 2", 0.125, {{"strategy", "geometric"}, {"ratio", "2"}});
  const std::vector<Advice> advice = Advise(model, &trials);
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].action,
            "\"geometric 2\" gains 12.5% on the last 400 arrivals, in a simulation with the "
            "measured costs: sluice ladder set m --ratio 2 --strategy geometric.");
}

TEST(AdviseWithTrials, ReportsAnAdaptiveLadderThatFollowsTooSlowly) {
  ModelBuckets model = Healthy();
  model.mutable_ladder_changes()->set_reviews(7);
  const StrategyTrials trials = Trials("adaptive", 0.1, {{"strategy", "adaptive"}});
  const std::vector<Advice> advice = Advise(model, &trials);
  ASSERT_EQ(advice.size(), 1u) << "although its efficiency is high";
  EXPECT_THAT(advice[0].finding, HasSubstr("too slowly: 7 reviews"));
  EXPECT_THAT(advice[0].action, HasSubstr("gains 10.0%"));
  EXPECT_THAT(advice[0].action, HasSubstr("sluice review --force"));
}

TEST(AdviseWithTrials, ProposesNoLadderWithoutGain) {
  ModelBuckets model = Healthy();
  const StrategyTrials trials = Trials("adaptive", 0.02, {{"strategy", "adaptive"}});
  EXPECT_TRUE(Advise(model, &trials).empty());
  model.mutable_last_hour()->set_bucket_fill(0.5);
  const std::vector<Advice> advice = Advise(model, &trials);
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_THAT(advice[0].action, HasSubstr("Leave the ladder as it is: on the last 400 arrivals"));
}

TEST(AdviceText, ListsTheAdviceOrReportsThatNothingShouldChange) {
  EXPECT_EQ(AdviceText({}), "Nothing to change: the buckets fit the traffic.\n");
  EXPECT_EQ(AdviceText({{"A.", "Do b."}, {"C.", "Do d."}}), "- A. Do b.\n- C. Do d.\n");
}

}  // namespace
}  // namespace sluice::client
