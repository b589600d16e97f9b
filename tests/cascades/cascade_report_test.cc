#include "cascades/cascade_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cascades/derivation.h"
#include "cascades/einsum/text.h"
#include "nlohmann/json.hpp"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using einsum::Home;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = AttentionVariant::Kind;

// A processor with round numbers.
einsum::DeviceDescription Device(int32_t workers) {
  return {.name = "test",
          .workers = workers,
          .flops_per_second = 1e11,
          .exponentials_per_second = 2e9,
          .launch_seconds = 2e-6,
          .levels = {{.name = "L1", .bytes = 32 << 10, .bytes_per_second = 2e11},
                     {.name = "L2", .bytes = 1 << 20, .bytes_per_second = 1e11},
                     {.name = "L3", .bytes = 32 << 20, .bytes_per_second = 5e10, .shared = true},
                     {.name = "memory",
                      .bytes = 1e12,
                      .bytes_per_second = 2e11,
                      .shared = true,
                      .worker_bytes_per_second = 1.5e10}}};
}

// Describes a step like a backend that measures nothing.
StepDescription StepOf(std::shared_ptr<const Model> model, StepSizes step,
                       AttentionVariant variant = {Kind::kOnePass}) {
  std::vector<double> bytes = WeightBytes(*model);
  return {.model = std::move(model),
          .step = step,
          .attention = variant,
          .attention_reason = "It was selected.",
          .weight_bytes = std::move(bytes)};
}

// Returns the report of a plan that runs one kernel for each op.
absl::StatusOr<CascadeReport> Report(const StepDescription& step,
                                     const einsum::DeviceDescription& device) {
  return MakeCascadeReport(step, device, std::vector<int64_t>(step.model->graph.ops.size(), 1));
}

struct EstimateRow {
  const char* name;
  AttentionWork work{};
  int32_t workers = 2;
  AttentionVariant best{};
};

class AttentionEstimateTable : public TableTest<EstimateRow> {};

TEST_P(AttentionEstimateTable, TakesTheLowestEstimate) {
  const auto found = EstimateAttention({.scale = 0.125}, row().work, Device(row().workers));
  ASSERT_TRUE(found.ok()) << found.status();
  const auto best = std::ranges::min_element(
      found->variants, {}, [](const AttentionEstimate& each) { return each.cost.seconds; });
  EXPECT_EQ(AttentionVariantName(best->variant), AttentionVariantName(row().best));
}

const EstimateRow kEstimateRows[] = {
    {.name = "OneWorkerNeedsNoSplit",
     .work = {.context = 32768, .group = 8},
     .workers = 1,
     .best = {Kind::kOnePass}},
    {.name = "ALongContextOfOneHeadIsSplit",
     .work = {.context = 32768, .group = 8},
     .workers = 8,
     .best = {Kind::kSplit, 0}},
    {.name = "TwoWorkersTakeTwoRanges",
     .work = {.context = 32768, .group = 8},
     .best = {Kind::kSplit, 2}},
    {.name = "AShortContextIsNotSplit",
     .work = {.context = 64, .group = 8},
     .best = {Kind::kOnePass}},
    {.name = "ManySequencesAreNotSplit",
     .work = {.sequences = 64, .context = 8192, .group = 8},
     .best = {Kind::kOnePass}},
};
SLUICE_TABLE(AttentionEstimateTable, kEstimateRows);

TEST(EstimateAttention, KernelsHaveThePassesOfTheirNames) {
  const auto check = [](const einsum::AttentionShape& shape) {
    const auto found = EstimateAttention(shape, {.context = 4096, .group = 8}, Device(2), 3);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->definition_passes, 3);
    EXPECT_TRUE(found->variants_complete);
    EXPECT_GT(found->variants_found, 5);
    std::vector<std::string> names;
    for (const AttentionEstimate& each : found->variants) {
      names.push_back(AttentionVariantName(each.variant));
      EXPECT_EQ(each.analysis.passes, each.variant.kind == Kind::kTwoPass ? 2 : 1) << names.back();
    }
    EXPECT_EQ(names, (std::vector<std::string>{"one_pass", "two_pass", "split:2", "split:3",
                                               "split:auto"}));
  };
  using einsum::XsaForm;
  for (const XsaForm xsa : {XsaForm::kNone, XsaForm::kNorm, XsaForm::kSquared}) {
    for (const bool gate : {false, true}) {
      SCOPED_TRACE(std::string(NameOf(xsa)) + (gate ? " with a gate" : ""));
      check({.scale = 0.125, .xsa = xsa, .gate = gate});
      check({.causal = false, .soft_cap = 30, .query_gain = true, .xsa = xsa, .gate = gate});
    }
  }
}

TEST(EstimateAttention, SplitsKeepARecordOfEachSegmentHoweverManyRangesTheyHave) {
  const AttentionWork work = {.sequences = 3, .context = 8192, .group = 8};
  const auto found = EstimateAttention({}, work, Device(64), 5);
  ASSERT_TRUE(found.ok()) << found.status();
  std::map<std::string, int64_t> items;
  std::map<std::string, double> written;
  for (const AttentionEstimate& each : found->variants) {
    items[AttentionVariantName(each.variant)] = each.cost.work_items;
    written[AttentionVariantName(each.variant)] = each.analysis.traffic.StoresOf(Home::kArena);
  }
  // split:auto uses one item per segment; 64 workers have several each.
  EXPECT_EQ(
      items,
      (std::map<std::string, int64_t>{
          {"one_pass", 3}, {"two_pass", 3}, {"split:2", 6}, {"split:5", 15}, {"split:auto", 48}}));
  // A largest score, a sum and a row of values for each query of 16 segments.
  const double records = 3.0 * 16 * 8 * (1 + 1 + 64) * 4;
  EXPECT_EQ(written["split:2"], written["one_pass"] + records);
  EXPECT_EQ(written["split:5"], written["split:2"]);
  EXPECT_EQ(written["split:auto"], written["split:2"]);
}

// Its two ranges would still have only one worker.
TEST(EstimateAttention, AutoDoesNotSplitForOneWorker) {
  const auto found = EstimateAttention({}, {.context = 4096, .group = 8}, Device(1));
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<std::string> names;
  for (const AttentionEstimate& each : found->variants) {
    names.push_back(AttentionVariantName(each.variant));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"one_pass", "two_pass", "split:2"}));
}

TEST(EstimateAttention, KeysInACacheAreFaster) {
  AttentionWork work = {.context = 8192, .group = 8};
  const auto seconds = [&] {
    return EstimateAttention({}, work, Device(1)).value().variants[0].cost.seconds;
  };
  const double from_memory = seconds();
  work.resident_bytes = 4 << 20;
  EXPECT_GT(from_memory / seconds(), 1.5);
}

TEST(EstimateAttention, AnItemHasTheSameRowsWhereverItsKeysAre) {
  const auto footprints = [](Home home) {
    std::map<std::string, std::vector<double>> all;
    const auto found =
        EstimateAttention({.kv = {home}}, {.context = 4096, .group = 8}, Device(2)).value();
    for (const AttentionEstimate& each : found.variants) {
      for (const einsum::PassEstimate& pass : each.cost.passes) {
        all[AttentionVariantName(each.variant)].push_back(pass.footprint_bytes);
      }
    }
    return all;
  };
  EXPECT_EQ(footprints(Home::kArena), footprints(Home::kKv));
}

TEST(EstimateAttention, RefusesInvalidSizes) {
  EXPECT_EQ(EstimateAttention({}, {.context = 0}, Device(1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EstimateAttention({}, {.tokens = 9, .context = 8}, Device(1)).status().message(),
            "tokens is 9, above the context of 8");
}

TEST(DeriveOnePass, LeadsFromThreePassesToOne) {
  const std::vector<DerivationStep> steps = DeriveOnePass({.causal = false}, 512).value();
  ASSERT_GE(steps.size(), 4u);
  EXPECT_EQ(steps.front().passes, 3);
  EXPECT_TRUE(steps.front().rule.empty());
  EXPECT_EQ(steps.back().passes, 1);
  std::vector<int> passes;
  for (const DerivationStep& step : steps) {
    EXPECT_EQ(einsum::Check(step.cascade), absl::OkStatus());
    EXPECT_EQ(step.rule.empty(), &step == &steps.front());
    passes.push_back(step.passes);
  }
  EXPECT_NE(std::ranges::find(passes, 2), passes.end()) << ::testing::PrintToString(passes);
}

TEST(DeriveOnePass, LeadsToOnePassWithXsaToo) {
  const auto steps = DeriveOnePass({.xsa = einsum::XsaForm::kNorm, .gate = true}, 512);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(steps->back().passes, 1);
}

TEST(DeriveOnePass, StopsAtTheLimitOfTerms) {
  const absl::Status status = DeriveOnePass({}, 512, 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(MakeCascadeReport, CountsEveryOpOfTheGraphOnce) {
  ModelConfig config = testing::TinyConfig(3);
  config.max_positions = 2048;
  config.xsa.layers = {true, false, true};
  const auto model = testing::RandomModel(config, 5);
  const auto report = Report(StepOf(model, {2, 1, 1500}), Device(2));
  ASSERT_TRUE(report.ok()) << report.status();
  int64_t ops = 0, einsums = 0;
  for (const OpReport& op : report->ops) {
    ops += op.count();
    einsums += op.count() * op.einsums;
    EXPECT_EQ(einsum::Check(op.cascade), absl::OkStatus());
    EXPECT_EQ(std::ranges::count(report->ops, op.cascade, &OpReport::cascade), 1);
    EXPECT_GT(op.cost.seconds, 0);
  }
  EXPECT_EQ(ops, std::ssize(model->graph.ops));
  EXPECT_EQ(report->einsums, einsums);
  ASSERT_EQ(report->attention.size(), 2u);
  EXPECT_TRUE(report->attention[0].xsa);
  EXPECT_EQ(report->attention[0].count, 2);
  EXPECT_GT(report->attention[0].xsa_einsums, 3);
  EXPECT_EQ(report->attention[1].count, 1);
  EXPECT_EQ(report->attention[1].xsa_einsums, 0);
  const json all = CascadeReportJson(*report);
  EXPECT_EQ(all["ops"].size(), report->ops.size());
  EXPECT_EQ(all["attention"][0]["definition_passes"], 3);
  EXPECT_EQ(all["attention"][0]["variants_complete"], true);
}

TEST(MakeCascadeReport, CountsTheKernelsOfThePlan) {
  const auto model = testing::RandomModel(testing::TinyConfig(2), 5);
  std::vector<int64_t> kernels(model->graph.ops.size(), 1);
  kernels[0] = 0;
  kernels.back() = 3;
  // The first of two equal norms.
  const auto norm = std::ranges::find_if(
      model->graph.ops, [](const GraphOp& op) { return std::holds_alternative<NormOp>(op); });
  kernels[norm - model->graph.ops.begin()] = 2;
  const auto report = MakeCascadeReport(StepOf(model, {1, 1, 8}), Device(2), kernels);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->kernels, std::reduce(kernels.begin(), kernels.end()));
  EXPECT_EQ(report->ops.front().kernels, 0);
  EXPECT_EQ(report->ops.back().kernels, 3);
  for (const OpReport& op : report->ops) {
    for (const size_t at : op.ops) EXPECT_EQ(op.kernels, kernels[at]) << at;
  }
  const json all = CascadeReportJson(*report);
  EXPECT_EQ(all["kernels"], report->kernels);
  EXPECT_EQ(all["einsums"], report->einsums);
  EXPECT_EQ(all["ops"].back()["kernels"], 3);
}

TEST(MakeCascadeReport, ReportsTheServingVariantAndTheReason) {
  ModelConfig config = testing::TinyConfig(1);
  config.max_positions = 4096;
  const auto model = testing::RandomModel(config, 5);
  const auto plan = [&](const AttentionVariant& variant, int64_t context) {
    const auto report = Report(StepOf(model, {1, 1, context}, variant), Device(8));
    return report.value().attention[0];
  };
  EXPECT_EQ(plan({Kind::kTwoPass}, 4096).chosen, AttentionVariant{Kind::kTwoPass});
  const CascadeReport::OfAttention divided = plan({Kind::kSplit, 4}, 4096);
  EXPECT_EQ(AttentionVariantName(divided.chosen), "split:4");
  EXPECT_THAT(divided.reason, StartsWith("It was selected. In this step, by estimate, one_pass "));
  const CascadeReport::OfAttention whole = plan({Kind::kSplit, 4}, 100);
  EXPECT_EQ(whole.chosen, AttentionVariant{Kind::kOnePass});
  EXPECT_THAT(whole.reason, HasSubstr("split:4 reads this step's keys in one pass"));
}

TEST(MakeCascadeReport, AttentionCostsAreTheServingVariantsCosts) {
  ModelConfig config = testing::TinyConfig(1);
  config.max_positions = 4096;
  const auto model = testing::RandomModel(config, 5);
  const auto report = Report(StepOf(model, {1, 1, 4096}, {Kind::kSplit, 4}), Device(8));
  ASSERT_TRUE(report.ok()) << report.status();
  const CascadeReport::OfAttention& plan = report->attention[0];
  const auto op = std::ranges::find(report->ops, "attention", &OpReport::kind);
  ASSERT_NE(op, report->ops.end());
  EXPECT_EQ(op->cost.seconds,
            std::ranges::find(plan.estimates.variants, plan.chosen, &AttentionEstimate::variant)
                ->cost.seconds);
}

TEST(MakeCascadeReport, CountsWeightsAsTheyAreKept) {
  const auto bytes = [](std::shared_ptr<const Model> model) {
    const auto report = Report(StepOf(std::move(model), {1, 1, 8}), Device(1));
    std::map<std::string, double> of_kind;
    for (const OpReport& op : report.value().ops) {
      of_kind[op.kind] += op.analysis.traffic.LoadsOf(einsum::Home::kWeight);
    }
    return of_kind;
  };
  const ModelConfig config = testing::TinyConfig(1);
  const auto f32 = bytes(testing::RandomModel(config, 5));
  const auto bf16 = bytes(testing::RandomModel(config, 5, kernels::DType::kBF16));
  const auto f16 = bytes(testing::RandomModel(config, 5, kernels::DType::kF16));
  for (const char* const kind : {"linear", "head", "embed"}) {
    EXPECT_EQ(f32.at(kind), 2 * bf16.at(kind)) << kind;
  }
  EXPECT_EQ(f32.at("rms_norm"), bf16.at("rms_norm")) << "vectors are kept in f32";
  EXPECT_EQ(f16.at("linear"), f32.at("linear")) << "f16 is widened in panels";
  EXPECT_EQ(f16.at("embed"), bf16.at("embed")) << "a table stays as it is";

  const auto announced = std::make_shared<Model>();
  announced->config = config;
  announced->config.stored_in_bf16 = true;
  announced->graph = BuildGraph(config);
  EXPECT_EQ(bytes(announced), bf16);
}

TEST(MakeCascadeReport, CountsQuantisedWeightsAndPagesWithTheirScales) {
  const auto bytes = [](const ModelConfig& config, einsum::Home home) {
    const auto model = std::make_shared<Model>();
    model->config = config;
    model->graph = BuildGraph(config);
    double sum = 0;
    const CascadeReport report = Report(StepOf(model, {1, 1, 8}), Device(1)).value();
    for (const OpReport& op : report.ops) {
      const bool counts = home == einsum::Home::kKv || op.kind == "linear";
      if (counts) sum += static_cast<double>(op.count()) * op.analysis.traffic.LoadsOf(home);
    }
    return sum;
  };
  ModelConfig config = testing::TinyConfig(1);
  const double f32 = bytes(config, einsum::Home::kWeight);
  const double pages = bytes(config, einsum::Home::kKv);
  ASSERT_GT(pages, 0);
  config.quantization = {Quantization::kInt8};
  EXPECT_EQ(bytes(config, einsum::Home::kWeight), f32 / 4);
  config.quantization = {Quantization::kInt4, false, 32};
  EXPECT_EQ(bytes(config, einsum::Home::kWeight), f32 / 4 * (0.5 + 4.0 / 32));
  config.kv_dtype = KvType::kBF16;
  EXPECT_EQ(bytes(config, einsum::Home::kKv), pages / 2);
  config.kv_dtype = KvType::kInt8;
  EXPECT_EQ(bytes(config, einsum::Home::kKv), pages / 4 * (1 + 4.0 / config.head_dim));
}

// They are the rows of the step, in f32 for every type of pages. Values stay in place.
TEST(MakeCascadeReport, CountsKeysAndValuesOfAnEncoderAsActivations) {
  const auto model = std::make_shared<Model>();
  model->config = testing::TinySluiceConfig(2);
  model->config.kv_dtype = KvType::kInt8;
  const auto traffic = [&](std::string_view kind) {
    model->graph = BuildGraph(model->config);
    const CascadeReport report = Report(StepOf(model, {3, 8, 8}), Device(1)).value();
    return std::ranges::find(report.ops, kind, &OpReport::kind)->analysis.traffic;
  };
  constexpr double kRowBytes = 3 * 8 * 4, kQueries = 4 * 8, kKeys = 2 * 8;
  EXPECT_GT(traffic("rope_store").StoresOf(Home::kKv), 0);
  EXPECT_GT(traffic("attention").LoadsOf(Home::kKv), 0);
  EXPECT_EQ(traffic("attention").LoadsOf(Home::kArena), kRowBytes * kQueries);
  model->config.causal = false;
  for (const char* const kind : {"rope_store", "attention"}) {
    EXPECT_EQ(traffic(kind).StoresOf(Home::kKv), 0) << kind;
    EXPECT_EQ(traffic(kind).LoadsOf(Home::kKv), 0) << kind;
  }
  EXPECT_EQ(traffic("rope_store").StoresOf(Home::kArena), kRowBytes * (kQueries + kKeys));
  EXPECT_EQ(traffic("attention").LoadsOf(Home::kArena), kRowBytes * (kQueries + 2 * kKeys));
}

TEST(MakeCascadeReport, SumsTheTimesOfEqualOps) {
  const auto model = testing::RandomModel(testing::TinyConfig(3), 5);
  StepDescription step = StepOf(model, {1, 1, 8});
  std::vector<double>& seconds = step.seconds;
  seconds.resize(model->graph.ops.size());
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = std::ldexp(1.0, static_cast<int>(i));
  const CascadeReport report = Report(step, Device(1)).value();
  double sum = 0;
  for (const OpReport& op : report.ops) sum += op.seconds.value();
  EXPECT_EQ(sum, std::ldexp(1.0, static_cast<int>(seconds.size())) - 1) << "each op once";
  const json norm = CascadeReportJson(report)["ops"][1];
  EXPECT_EQ(norm["kind"], "rms_norm");
  double norms = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (std::holds_alternative<NormOp>(model->graph.ops[i])) norms += seconds[i];
  }
  EXPECT_EQ(norm["measured_seconds"], norms);
}

// Returns the report of a step whose ops take `factor` of the time of their rooflines, and the op
// `fast` takes `factor_of_fast`.
CascadeReport ReportOfTimes(double factor, size_t fast, double factor_of_fast) {
  StepDescription step = StepOf(testing::RandomModel(testing::TinyConfig(3), 5), {4, 2, 8});
  const CascadeReport unmeasured = Report(step, Device(2)).value();
  step.seconds.resize(step.model->graph.ops.size());
  for (const OpReport& op : unmeasured.ops) {
    for (const size_t at : op.ops) {
      const bool is_fast = at == unmeasured.ops[fast].ops.front() && op.count() == 1;
      step.seconds[at] = op.roofline.seconds * (is_fast ? factor_of_fast : factor);
    }
  }
  return Report(step, Device(2)).value();
}

double ShareOf(const OpReport& op) {
  return op.roofline.seconds * static_cast<double>(op.count()) / op.seconds.value();
}

TEST(MakeCascadeReport, RooflinesAreThoseOfTheDeviceIfAllOpsAreSlower) {
  const CascadeReport report = ReportOfTimes(2, 0, 1.5);
  EXPECT_TRUE(report.raised.empty());
  EXPECT_NEAR(ShareOf(report.ops.front()), 1 / 1.5, 1e-9);
  EXPECT_NEAR(ShareOf(report.ops.back()), 0.5, 1e-9);
}

// The first op is the embedding of tokens, which only moves bytes.
TEST(MakeCascadeReport, AnOpThatIsFasterThanTheDeviceRaisesTheCeilingOfAllOps) {
  const CascadeReport report = ReportOfTimes(2, 0, 0.25);
  ASSERT_EQ(report.raised.size(), 1u);
  EXPECT_NEAR(report.raised[0].factor, 4, 1e-9);
  EXPECT_EQ(report.raised[0].op, "embed");
  EXPECT_EQ(report.raised[0].name, report.ops.front().roofline.bound);
  EXPECT_NEAR(ShareOf(report.ops.front()), 1, 1e-9);
  int slower = 0;
  for (const OpReport& op : report.ops) {
    EXPECT_LE(ShareOf(op), 1 + 1e-9) << op.kind;
    slower += ShareOf(op) < 0.49;  // it was half of the roofline before the ceiling rose
  }
  EXPECT_GT(slower, 0);
  const json all = CascadeReportJson(report);
  EXPECT_EQ(all["raised_ceilings"][0]["op"], "embed");
}

TEST(MakeCascadeReport, NoShareIsAboveTheRooflineAtAnyTimes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  StepDescription step = StepOf(testing::RandomModel(testing::TinyConfig(3), 5), {4, 2, 8});
  size_t raised = 0;
  for (int round = 0; round < 20; ++round) {
    step.seconds.clear();
    for (size_t i = 0; i < step.model->graph.ops.size(); ++i) {
      // From a picosecond to a second; some are too short for the clock.
      step.seconds.push_back(random() % 8 == 0 ? 0 : std::pow(10, -0.1 * (random() % 120)));
    }
    const CascadeReport report = Report(step, Device(2)).value();
    raised += report.raised.size();
    for (const OpReport& op : report.ops) {
      if (*op.seconds > 0) {
        EXPECT_LE(ShareOf(op), 1 + 1e-9) << op.kind;
      }
    }
  }
  EXPECT_GT(raised, 0u);
}

}  // namespace
}  // namespace sluice
