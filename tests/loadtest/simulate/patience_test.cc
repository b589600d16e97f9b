#include "loadtest/simulate/patience.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::loadtest {
namespace {

// A device that computes about 6,500 tokens per second, as a CPU does.
PatienceOptions Slow() {
  PatienceOptions options;
  options.experiment.batch.max_batch_tokens = 4096;
  options.experiment.assumed_rows = ComputedRows::OfBatch();
  options.experiment.costs = {.rows = ComputedRows::OfBatch(),
                              .base_seconds = 4e-3,
                              .seconds_per_bucket_token = 0,
                              .seconds_per_computed_token = 150e-6};
  options.cap = 2048;
  options.processes = {"poisson"};
  options.seconds = 300;
  options.seeds = 3;
  return options;
}

double Value(const nlohmann::json& row, const char* kind, const char* key) {
  return row[kind][key].get<double>();
}

// Patient calls do not lower the goodput of the others, nor delay them, at any load.
TEST(RunPatience, TheBacklogDoesNotMakeAnOverloadWorse) {
  const auto rows = RunPatience(Slow());
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 8u);
  for (size_t i = 0; i < rows->size(); i += 2) {
    const nlohmann::json &before = (*rows)[i], &after = (*rows)[i + 1];
    ASSERT_EQ(before["rule"], "max_wait");
    ASSERT_EQ(after["rule"], "backlog");
    SCOPED_TRACE(after.dump());
    EXPECT_GE(Value(after, "short", "goodput"), 0.98 * Value(before, "short", "goodput"));
    EXPECT_LE(Value(after, "short", "p99_s"), 1.02 * Value(before, "short", "p99_s"));
    EXPECT_GE(Value(after, "long", "goodput"), 0.95 * Value(before, "long", "goodput"));
    EXPECT_LE(Value(after, "long", "late"), 0.02);
  }
}

// Callers with few patient calls are not refused because of a caller with many.
TEST(RunPatience, AGreedyCallerDoesNotFillTheBacklog) {
  PatienceOptions options = Slow();
  options.greedy = true;
  options.loads = {2};
  const auto rows = RunPatience(options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_GT(Value((*rows)[0], "long", "refused"), 0.03);
  EXPECT_LT(Value((*rows)[1], "long", "refused"), 0.01);
  EXPECT_LT(Value((*rows)[1], "short", "refused"), 0.3) << "turns protect them in the queue too";
  EXPECT_GE(Value((*rows)[1], "short", "goodput"), 0.95 * Value((*rows)[0], "short", "goodput"));
}

// Below the capacity, bursts are refused without the backlog and answered with it.
TEST(RunPatience, TheBacklogTakesBursts) {
  PatienceOptions options = Slow();
  options.processes = {"bursty"};
  options.loads = {0.6};
  const auto rows = RunPatience(options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_GT(Value((*rows)[0], "long", "refused"), 0.1);
  EXPECT_LT(Value((*rows)[1], "long", "refused"), 0.01);
}

TEST(RunPatience, UnknownProcessesAreAnError) {
  PatienceOptions options = Slow();
  options.processes = {"steady"};
  const auto rows = RunPatience(options);
  EXPECT_EQ(rows.status().message(), "unknown process steady");
}

}  // namespace
}  // namespace sluice::loadtest
