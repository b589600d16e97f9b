// Fails if a kernel costs more than its budget in costs.json, counted by kernels/simt/costs.h. With
// --update the program writes the costs as budgets, docs/gpu_costs.md, and the counts of loops
// (loop_counts.h). It writes worse costs only if --accept_worse is also given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/simt/kernel_registry.h"
#include "tests/kernels/cuda/cost_cases.h"
#include "tests/kernels/cuda/cost_table.h"
#include "tests/kernels/cuda/loop_counts.h"

namespace sluice::simt {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kBudgets[] = SLUICE_SOURCE_DIR "/tests/kernels/cuda/costs.json";
constexpr char kPage[] = SLUICE_SOURCE_DIR "/docs/gpu_costs.md";
constexpr char kLoops[] = SLUICE_SOURCE_DIR "/tests/kernels/cuda/loops.json";

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Returns the costs of all cases. If a case makes several launches, the kernels' names are added to
// the names of its rows.
CostTable Measure() {
  CostTable table;
  for (const kernels::cuda::CostCase& each : kernels::cuda::CostCases()) {
    DeviceLab lab(MakeSimtDevice({.seed = 1, .processors = 132}));
    std::mt19937_64 random(1);
    const CostMeter meter;
    each.run(lab, random);
    const absl::Status status = lab.Finish();
    EXPECT_TRUE(status.ok()) << each.name << ": " << status;
    for (const LaunchCosts& costs : meter.launches()) {
      const bool only = meter.launches().size() == 1;
      table.emplace_back(only ? each.name : absl::StrCat(each.name, ": ", costs.kernel),
                         MakeCostRow(each.shape, costs));
    }
  }
  return table;
}

const CostTable& Measured() {
  static const CostTable* const table = new CostTable(Measure());
  return *table;
}

CostTable Budgets() {
  absl::StatusOr<CostTable> table = ReadCostTable(ReadFile(kBudgets));
  EXPECT_TRUE(table.ok()) << kBudgets << ": " << table.status();
  return table.ok() ? *std::move(table) : CostTable();
}

constexpr char kAdvice[] = "(kernels_cost_test --update writes new budgets)";

TEST(CostTest, NoKernelIsWorseThanItsBudget) {
  const CostVerdict verdict = Judge(Measured(), Budgets());
  for (const std::string& error : verdict.errors) ADD_FAILURE() << error << " " << kAdvice;
  for (const std::string& hint : verdict.hints) std::printf("hint: %s\n", hint.c_str());
}

TEST(CostTest, EveryKernelHasABudget) {
  (void)Measured();
  for (const std::string& kernel : NeverLaunched()) {
    ADD_FAILURE() << "no case of cost_cases.cc launches " << kernel;
  }
}

TEST(CostTest, RowsHaveDifferentNames) {
  std::set<std::string> names;
  for (const auto& [name, row] : Measured()) EXPECT_TRUE(names.insert(name).second) << name;
}

TEST(CostTest, ThePageMatchesTheBudgets) {
  EXPECT_EQ(ReadFile(kPage), DescribeCostTable(Budgets())) << kAdvice;
}

TEST(CostTest, LoopsHaveTheRecordedCounts) { EXPECT_EQ(ReadFile(kLoops), CountLoops()) << kAdvice; }

TEST(CostTest, TheSameRunHasTheSameCosts) {
  const auto cases = kernels::cuda::CostCases();
  for (const uint64_t seed : {2, 3}) {
    DeviceLab lab(MakeSimtDevice({.seed = seed, .processors = 132}));
    std::mt19937_64 random(1);
    const CostMeter meter;
    cases[0].run(lab, random);
    ASSERT_TRUE(lab.Finish().ok());
    EXPECT_EQ(MakeCostRow(cases[0].shape, meter.launches().at(0)), Measured()[0].second)
        << "in another order of threads";
  }
}

// One row with a few counters.
CostTable Row(const std::string& name, const LaunchCosts& costs) {
  return {{name, MakeCostRow("a shape", costs)}};
}

LaunchCosts SomeCosts() {
  LaunchCosts costs;
  costs.blocks = costs.working_blocks = 4;
  costs.sectors = costs.ideal_sectors = 10;
  return costs;
}

TEST(CostTableTest, ReportsWorseCountersAsErrors) {
  LaunchCosts more = SomeCosts();
  more.sectors = 80;
  EXPECT_THAT(Judge(Row("Mix", more), Row("Mix", SomeCosts())).errors,
              ElementsAre("Mix: 80 sectors of 32 bytes, the budget is 10"));
  LaunchCosts idle = SomeCosts();
  idle.working_blocks = 2;
  EXPECT_THAT(Judge(Row("Mix", idle), Row("Mix", SomeCosts())).errors,
              ElementsAre("Mix: 2 blocks with work, the budget is 4"));
  LaunchCosts contended = SomeCosts();
  contended.shared_atomics.worst_in_warp = 32;
  EXPECT_THAT(Judge(Row("Mix", contended), Row("Mix", SomeCosts())).errors,
              Contains(HasSubstr("shared atomics of a warp on one address, the budget is 0")));
}

TEST(CostTableTest, ReportsBetterCountersAsHints) {
  LaunchCosts less = SomeCosts();
  less.sectors = 9;
  const CostVerdict verdict = Judge(Row("Mix", less), Row("Mix", SomeCosts()));
  EXPECT_THAT(verdict.errors, IsEmpty());
  EXPECT_THAT(verdict.hints, ElementsAre("Mix: 9 sectors of 32 bytes, the budget is 10"));
}

TEST(CostTableTest, ReportsLaunchesWithoutBudgetsAndBudgetsWithoutLaunches) {
  EXPECT_THAT(Judge(Row("Mix", SomeCosts()), {}).errors, ElementsAre("Mix: no budget"));
  EXPECT_THAT(Judge({}, Row("Mix", SomeCosts())).errors,
              ElementsAre("Mix: a budget without a launch"));
  CostTable other = Row("Mix", SomeCosts());
  other[0].second.shape = "another";
  EXPECT_THAT(Judge(Row("Mix", SomeCosts()), other).errors,
              ElementsAre("Mix: the budget is of another, not of a shape"));
}

TEST(CostTableTest, IsReadAsItWasWritten) {
  const CostTable table = Row("Mix \"bf16\"", SomeCosts());
  const absl::StatusOr<CostTable> read = ReadCostTable(WriteCostTable(table));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, table);
}

// Returns the exit status.
int Update(bool accept_worse) {
  std::ofstream(kLoops) << CountLoops();
  const CostTable& measured = Measured();
  if (testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) return 1;
  std::vector<std::string> worse;
  if (const auto budgets = ReadCostTable(ReadFile(kBudgets)); budgets.ok() && !accept_worse) {
    for (const auto& row : measured) {
      for (const auto& budget : *budgets) {
        if (budget.first != row.first || budget.second.shape != row.second.shape) continue;
        for (std::string& error : Judge({row}, {budget}).errors) worse.push_back(std::move(error));
      }
    }
  }
  if (!worse.empty()) {
    std::printf("%s\nnothing was written; to write these costs, pass --accept_worse\n",
                absl::StrJoin(worse, "\n").c_str());
    return 1;
  }
  std::ofstream(kBudgets) << WriteCostTable(measured);
  std::ofstream(kPage) << DescribeCostTable(measured);
  std::printf("wrote %s, %s and %s\n", kBudgets, kPage, kLoops);
  return 0;
}

}  // namespace
}  // namespace sluice::simt

int main(int argc, char** argv) {
  bool update = false, accept_worse = false;
  for (int i = 1; i < argc; ++i) {
    update = update || std::strcmp(argv[i], "--update") == 0;
    accept_worse = accept_worse || std::strcmp(argv[i], "--accept_worse") == 0;
  }
  testing::InitGoogleMock(&argc, argv);
  return update ? sluice::simt::Update(accept_worse) : RUN_ALL_TESTS();
}
