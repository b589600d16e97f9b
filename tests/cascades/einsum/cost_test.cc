#include "cascades/einsum/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/egraph.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/text.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

// The variant of the fewest einsums that has the passes and does or does not leave partials.
Cascade Shortest(int64_t chunk, int passes, bool splits) {
  TermPool pool;
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(AttentionTerm(pool, {}));
  graph.Saturate(AllRules({.partitions = {{"m", "c", "j", chunk}}}), {});
  Cascade best;
  for (const TermId variant : VariantsOf(graph, pool, root, 1000).terms) {
    Cascade cascade = Lower(pool, {{"Z", variant}});
    if (Passes(cascade, "context") != passes) continue;
    int64_t partials = 0;
    int64_t iterations = 0;
    for (const Tensor& tensor : cascade.tensors) {
      if (tensor.home == Home::kArena && tensor.name != "Q" && tensor.name != "Z") ++partials;
    }
    for (const Statement& each : cascade.statements) {
      if (std::holds_alternative<Iteration>(each)) ++iterations;
    }
    if ((partials > 0) != splits || (splits && (partials != 3 || iterations != 1))) continue;
    if (best.ranks.empty() || AllEinsums(cascade).size() < AllEinsums(best).size()) best = cascade;
  }
  EXPECT_FALSE(best.ranks.empty());
  return best;
}

const Cascade& Variant(const std::string& name) {
  static const std::map<std::string, Cascade> variants = {
      {"three_pass", Shortest(256, 3, false)},
      {"two_pass", Shortest(256, 2, false)},
      {"one_pass", Shortest(256, 1, false)},
      {"split", Shortest(2048, 1, true)},
  };
  return variants.at(name);
}

// Eight workers saturate the memory.
DeviceDescription Device(int32_t workers) {
  return {.name = "test",
          .workers = workers,
          .flops_per_second = 6e10,
          .exponentials_per_second = 2e9,
          .launch_seconds = 3e-6,
          .levels = {{.name = "L1", .bytes = 32 << 10, .bytes_per_second = 2e11},
                     {.name = "L2", .bytes = 1 << 20, .bytes_per_second = 5e10},
                     {.name = "L3", .bytes = 16 << 20, .bytes_per_second = 2e11, .shared = true},
                     {.name = "memory",
                      .bytes = 1e12,
                      .bytes_per_second = 1e11,
                      .shared = true,
                      .worker_bytes_per_second = 1.3e10}}};
}

CostEstimate EstimateOf(const std::string& variant, const Sizes& sizes, int32_t workers,
                        const Circumstances& circumstances = {}) {
  const auto estimate = Estimate(Variant(variant), sizes, Device(workers), circumstances);
  EXPECT_TRUE(estimate.ok()) << estimate.status();
  return estimate.ok() ? *estimate : CostEstimate{};
}

Sizes Decode(int64_t sequences, int64_t kv_heads, int64_t context) {
  return {{"sequences", sequences}, {"kv_heads", kv_heads}, {"group", 8}, {"tokens", 1},
          {"context", context},     {"head_dim", 128}};
}

Sizes Prompt(int64_t tokens) {
  Sizes sizes = Decode(1, 2, tokens);
  sizes["tokens"] = tokens;
  return sizes;
}

struct OrderRow {
  const char* name;
  Sizes sizes;
  int32_t workers;
  std::vector<std::string> order;  // the cheapest first
};
class VariantOrder : public TableTest<OrderRow> {};

TEST_P(VariantOrder, FollowsTheCosts) {
  for (size_t i = 1; i < row().order.size(); ++i) {
    const double less = EstimateOf(row().order[i - 1], row().sizes, row().workers).seconds;
    const double more = EstimateOf(row().order[i], row().sizes, row().workers).seconds;
    EXPECT_LT(less, more) << row().order[i - 1] << " and " << row().order[i];
  }
}

const OrderRow kOrderRows[] = {
    {"AScoreRowThatLeavesTheSecondLevel",
     Decode(1, 2, 131072),
     2,
     {"one_pass", "two_pass", "three_pass"}},
    {"APromptWhoseScoresStayInTheFirstLevel", Prompt(512), 2, {"two_pass", "one_pass"}},
    {"OneSequenceWithOneKvHeadOnTwoWorkers",
     Decode(1, 1, 32768),
     2,
     {"split", "one_pass", "two_pass"}},
    {"OneSequenceWithTwoKvHeadsOnSixteenWorkers",
     Decode(1, 2, 131072),
     16,
     {"split", "one_pass", "two_pass"}},
    {"AKvHeadForEachWorkerLeavesNothingToSplit", Decode(1, 2, 32768), 2, {"one_pass", "split"}},
    {"ManySequencesLeaveNothingToSplit", Decode(64, 2, 4096), 2, {"one_pass", "split"}},
    {"OneWorkerHasNothingToSplit", Decode(1, 1, 65536), 1, {"one_pass", "split"}},
};
SLUICE_TABLE(VariantOrder, kOrderRows);

TEST(Cost, OneSequenceWithOneKvHeadUsesOneWorkerUnlessItIsSplit) {
  const Sizes sizes = Decode(1, 1, 32768);
  EXPECT_EQ(EstimateOf("one_pass", sizes, 16).work_items, 1);
  EXPECT_EQ(EstimateOf("one_pass", sizes, 16).usable_workers, 1);
  EXPECT_EQ(EstimateOf("split", sizes, 16).work_items, 16);
  EXPECT_EQ(EstimateOf("split", sizes, 16).usable_workers, 16);
  EXPECT_EQ(EstimateOf("split", sizes, 64).usable_workers, 16);
}

TEST(Cost, AProductIsSharedByRowsAndColumns) {
  const Cascade product =
      Parse(
          "rank t = rows rank d = hidden rank e = 8 tensor X[t, d] arena tensor W[d, e] weight "
          "tensor Y[t, e] arena Y[t, e] = X[t, d] . W[d, e] :: map x(and) reduce d +(or)")
          .value();
  const auto estimate = Estimate(product, {{"rows", 3}, {"hidden", 64}}, Device(16));
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->work_items, 24);
  EXPECT_EQ(estimate->usable_workers, 12);
}

TEST(Cost, TheLastRoundMayLeaveWorkersIdle) {
  EXPECT_EQ(EstimateOf("one_pass", Decode(3, 1, 4096), 2).usable_workers, 1.5);
}

TEST(Cost, PartialsNeedAnotherLaunch) {
  const Sizes sizes = Decode(1, 1, 32768);
  EXPECT_EQ(EstimateOf("one_pass", sizes, 2).launches, 1);
  EXPECT_EQ(EstimateOf("split", sizes, 2).launches, 2);
}

TEST(Cost, MoreWorkersThanSaturateTheMemoryAddNoSpeed) {
  const Sizes sizes = Decode(64, 1, 65536);
  const double eight = EstimateOf("one_pass", sizes, 8).passes[0].transfer_seconds;
  const double many = EstimateOf("one_pass", sizes, 64).passes[0].transfer_seconds;
  EXPECT_GT(many / eight, 0.99);
  EXPECT_GT(EstimateOf("one_pass", sizes, 4).passes[0].transfer_seconds / eight, 1.8);
}

double TransferSeconds(const CostEstimate& estimate) {
  double seconds = 0;
  for (const PassEstimate& pass : estimate.passes) seconds += pass.transfer_seconds;
  return seconds;
}

TEST(Cost, KeysComeFromTheLevelThatHoldsTheResidentBytes) {
  const Sizes sizes = Decode(1, 1, 8192);  // 8 MiB of keys and values
  const auto seconds = [&](double resident_bytes) {
    return TransferSeconds(EstimateOf("one_pass", sizes, 1, {.resident_bytes = resident_bytes}));
  };
  const double memory = TransferSeconds(EstimateOf("one_pass", sizes, 1));
  const double from_l3 = seconds(0);
  EXPECT_NEAR(memory / from_l3, 2e11 / 1.3e10, 0.05);
  EXPECT_EQ(seconds(16 << 20), from_l3);
  EXPECT_EQ(seconds((16 << 20) + 1), memory);
}

TEST(Cost, AWorkersOwnLevelMovesKeptDataInParallelWithTheKeys) {
  const auto seconds = [](const std::string& variant, int64_t context) {
    return TransferSeconds(EstimateOf(variant, Decode(1, 1, context), 1));
  };
  EXPECT_NEAR(seconds("two_pass", 16384) / seconds("one_pass", 16384), 1, 1e-6);
  // The scores of this many keys, written and read, use the same path as the keys.
  const double scores = 131072 * 8 * 4;
  EXPECT_GE(seconds("two_pass", 131072), seconds("one_pass", 131072) + 2 * scores / 2e11);
}

TEST(Cost, WorkIsDividedIntoAtMostTheGivenItems) {
  const Sizes sizes = Decode(1, 1, 32768);
  EXPECT_EQ(EstimateOf("split", sizes, 16, {.most_work_items = 4}).work_items, 4);
  EXPECT_EQ(EstimateOf("split", sizes, 16, {.most_work_items = 4}).usable_workers, 4);
  EXPECT_EQ(EstimateOf("split", sizes, 16, {.most_work_items = 100}).work_items, 16);
}

TEST(Cost, PassesHaveTheLevelThatHoldsTheScores) {
  const auto level = [](const std::string& variant, int64_t context) {
    return EstimateOf(variant, Decode(1, 1, context), 1).passes.back().level;
  };
  EXPECT_EQ(level("two_pass", 512), "L1");
  EXPECT_EQ(level("two_pass", 16384), "L2");
  EXPECT_EQ(level("two_pass", 131072), "L3");
  EXPECT_EQ(level("one_pass", 131072), "L1");
}

TEST(Cost, TheCheapestVariantOfAllIsFoundForEachDevice) {
  TermPool pool;
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(AttentionTerm(pool, {}));
  graph.Saturate(AllRules({.partitions = {{"m", "c", "j", 2048}}}), {});
  const std::vector<TermId> variants = VariantsOf(graph, pool, root, 1000).terms;
  const auto cheapest = [&](const Sizes& sizes, int32_t workers) {
    return Lower(pool, {{"Z", Cheapest(variants, [&](TermId variant) {
                                const Cascade cascade = Lower(pool, {{"Z", variant}});
                                return Estimate(cascade, sizes, Device(workers))->seconds;
                              }).term}});
  };
  const auto facts = [](const Cascade& cascade) {
    const bool splits =
        std::ranges::find(cascade.tensors, "G", &Tensor::name) != cascade.tensors.end();
    return std::pair(Passes(cascade, "context"), splits);
  };
  EXPECT_EQ(facts(cheapest(Decode(1, 1, 131072), 1)), std::pair(1, false));
  EXPECT_EQ(facts(cheapest(Decode(1, 1, 131072), 16)), std::pair(1, true));
  EXPECT_EQ(facts(cheapest(Prompt(512), 2)), std::pair(2, false));
}

struct OptimizedRow {
  const char* name;
  AttentionShape shape;
  bool all = true;  // whether all variants are compared
};
class OptimizedAttention : public TableTest<OptimizedRow> {};

// Stages find an attention of one pass that costs no more than the best of all variants, or of the
// first variants if there are too many.
TEST_P(OptimizedAttention, IsAsCheapAsTheBestVariant) {
  const RuleOptions options{.partitions = {{"m", "c", "j", 256}},
                            .own_value = OwnValueOfAttention()};
  TermPool pool;
  const auto cost = [&pool](TermId variant) {
    const Cascade cascade = Lower(pool, {{"Z", variant}});
    return Estimate(cascade, Decode(1, 1, 131072), Device(1))->seconds;
  };
  const TermId term = AttentionTerm(pool, row().shape);
  const Optimized best = Optimize(pool, term, StagesOf(options), 1000, cost);
  EXPECT_TRUE(best.complete);
  EXPECT_EQ(Passes(Lower(pool, {{"Z", best.term}}), "context"), 1);
  EGraph graph(&pool);
  const TermId root = graph.AddTerm(term);
  graph.Saturate(AllRules(options), {});
  const Variants variants = VariantsOf(graph, pool, root, 400);
  EXPECT_EQ(variants.complete, row().all);
  for (const TermId variant : variants.terms) {
    EXPECT_LE(cost(best.term), cost(variant) * 1.001) << TermText(pool, variant);
  }
}

const OptimizedRow kOptimizedRows[] = {
    {"Plain", {}},
    {"ScaledWithGain", {.scale = 0.125, .query_gain = true}},
    {"SoftCapped", {.scale = 0.125, .soft_cap = 30}, false},
    {"ExclusiveInTheNormForm", {.xsa = XsaForm::kNorm}, false},
    {"ExclusiveInTheSquaredForm", {.scale = 0.125, .xsa = XsaForm::kSquared}, false},
    {"GatedInTheNormForm", {.scale = 0.125, .xsa = XsaForm::kNorm, .gate = true}, false},
    {"GatedInTheSquaredForm", {.scale = 0.125, .xsa = XsaForm::kSquared, .gate = true}, false},
};
SLUICE_TABLE(OptimizedAttention, kOptimizedRows);

TEST(Optimize, ReportsOmittedVariants) {
  const RuleOptions options{.partitions = {{"m", "c", "j", 256}}, .own_value = {}};
  TermPool pool;
  const auto cost = [](TermId) { return 1.0; };
  const TermId term = AttentionTerm(pool, {});
  EXPECT_TRUE(Optimize(pool, term, StagesOf(options), 1000, cost).complete);
  EXPECT_FALSE(Optimize(pool, term, StagesOf(options), 1, cost).complete);
}

TEST(Cost, ASizeThatIsMissingIsAnError) {
  EXPECT_FALSE(Estimate(Variant("one_pass"), Sizes{{"tokens", 1}}, Device(1)).ok());
}

}  // namespace
}  // namespace sluice::einsum
