// The counted kernels of a step are the loops that its ops really run.
#include "engine/cpu/kernel_count.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/equal_sequences.h"
#include "engine/cpu/lower.h"
#include "engine/cpu/select_attention.h"
#include "kernels/cpu/loop_count.h"
#include "tests/engine/cpu/int8_models.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice::testing {
namespace {

using Kind = AttentionVariant::Kind;

// Returns the loops that each op of the graph runs.
std::vector<int64_t> LoopsOf(const std::shared_ptr<const Model>& model, const StepSizes& step,
                             const AttentionVariant& variant, int threads) {
  kernels::ThreadPool pool(threads, kernels::kMinShared);
  const kernels::Context context = {kernels::BestProfile(), &pool};
  auto lowered = Lower(*model, context, variant);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  const CpuModel executable(model, context, *std::move(lowered), {variant, ""}, /*poison=*/false);
  const Bucket bucket = {static_cast<int32_t>(step.sequences * step.tokens),
                         static_cast<int32_t>(step.sequences)};
  const int64_t pages_each = CeilDiv(step.context, kernels::kPageTokens);
  const auto plan = executable.Prepare(bucket).value();
  const auto slot =
      executable.CreateSlot(bucket, static_cast<int32_t>(step.sequences * pages_each)).value();
  const EqualSequences sequences(model->config, step, pages_each, executable.row_order());
  std::vector<int64_t> loops(model->graph.ops.size(), -1);
  int64_t before = kernels::LoopsOfThisThread();
  const absl::Status status =
      executable.Trace(*plan, *slot, sequences.batch(), [&](size_t op, const StepRun&) {
        const int64_t now = kernels::LoopsOfThisThread();
        loops[op] = now - before;
        before = now;
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(kernels::LoopsOfThisThread(), before) << "the op for states runs no kernel";
  return loops;
}

ModelConfig LongConfig() {
  ModelConfig config = TinyConfig(2);
  config.max_positions = 2000;
  config.xsa.layers = {true, false};
  return config;
}

ModelConfig Bidirectional() {
  ModelConfig config = TinySluiceConfig(2);
  config.causal = false;
  config.architecture = "SluiceModel";
  config.has_lm_head = false;
  config.input = InputKind::kEmbeds;
  config.input_width = 5;
  config.input_adapter = InputAdapter::kDense;
  return config;
}

ModelConfig Experts() {
  ModelConfig config = TinySluiceConfig(2);
  config.experts = {.count = 5, .chosen = 2, .width = 30, .layers = {false, true}};
  return config;
}

ModelConfig Int8() { return Int8Config(NormOrder::kQuery, /*gated=*/true); }

struct CountRow {
  const char* name;
  ModelConfig (*config)();
  StepSizes step;
  AttentionVariant variant = {Kind::kOnePass};
};

class CountTable : public TableTest<CountRow> {};

TEST_P(CountTable, EachOpRunsTheCountedKernels) {
  const auto model = RandomModel(row().config(), 7, kernels::DType::kBF16);
  const StepSizes step = CompleteStep(model->config, row().step).value();
  for (const int threads : {1, 2, 5}) {
    SCOPED_TRACE(threads);
    EXPECT_EQ(CountKernels(*model, step, row().variant, threads),
              LoopsOf(model, step, row().variant, threads));
  }
}

const CountRow kCountRows[] = {
    {"ADecodeStep", LongConfig, {.sequences = 3, .context = 1500}},
    {"APrompt", LongConfig, {.sequences = 2, .tokens = 9, .context = 20}},
    {"AHeadOfSeveralBlocks", LongConfig, {.sequences = 200, .context = 2}},
    {"TwoPasses", LongConfig, {.context = 1500}, {Kind::kTwoPass}},
    {"KeysInTwoParts", LongConfig, {.context = 1500}, {Kind::kSplit, 2}},
    {"KeysDividedIfThreadsAreIdle", LongConfig, {.context = 1500}, {Kind::kSplit, 0}},
    {"ManySequencesAreNotDivided",
     LongConfig,
     {.sequences = 32, .context = 600},
     {Kind::kSplit, 0}},
    {"AttentionInBothDirections", Bidirectional, {.sequences = 2, .context = 8}},
    {"RowsOfExperts", Experts, {.sequences = 2, .tokens = 5, .context = 8}},
    {"RowsOfExpertsInInt8", Int8ExpertsConfig, {.sequences = 2, .tokens = 5, .context = 8}},
    {"RowsInInt8", Int8, {.sequences = 2, .context = 8}},
};
SLUICE_TABLE(CountTable, kCountRows);

}  // namespace
}  // namespace sluice::testing
