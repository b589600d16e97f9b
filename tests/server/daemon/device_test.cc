#include "server/daemon/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/table.h"

namespace sluice {
namespace {

using Kind = DeviceChoice::Kind;

struct ChooseGpuRow {
  const char* name;
  DeviceChoice choice;
  absl::StatusOr<int> gpus;
  std::optional<int> chosen = std::nullopt;
  const char* error = "";
};
class ChooseGpuTable : public TableTest<ChooseGpuRow> {};

TEST_P(ChooseGpuTable, ChoosesADeviceOrExplainsTheError) {
  const auto chosen = ChooseGpu(row().choice, [] { return row().gpus; });
  EXPECT_EQ(chosen.ok(), std::string(row().error).empty());
  EXPECT_EQ(std::string(chosen.status().message()), row().error);
  EXPECT_EQ(chosen.value_or(std::nullopt), row().chosen);
}

const ChooseGpuRow kChooseGpuRows[] = {
    {.name = "AutoIsTheCpuWithoutADriver",
     .choice = {Kind::kAuto},
     .gpus = absl::FailedPreconditionError("no driver")},
    {.name = "AutoIsTheCpuOnAHostWithoutGpus", .choice = {Kind::kAuto}, .gpus = 0},
    {.name = "AutoIsTheFirstGpu", .choice = {Kind::kAuto}, .gpus = 2, .chosen = 0},
    {.name = "TheCpuServesBesideGpusWhereItIsAskedFor", .choice = {Kind::kCpu}, .gpus = 2},
    {.name = "TheOnlyGpuServes", .choice = {Kind::kCuda, 0}, .gpus = 1, .chosen = 0},
    {.name = "TheLastGpuServes", .choice = {Kind::kCuda, 1}, .gpus = 2, .chosen = 1},
    {.name = "AGpuNeedsADriver",
     .choice = {Kind::kCuda, 0},
     .gpus = absl::FailedPreconditionError("no driver"),
     .error = "device: cuda:0 is asked for, but no driver"},
    {.name = "AGpuNeedsAHostThatHasSome",
     .choice = {Kind::kCuda, 3},
     .gpus = 0,
     .error = "device: cuda:3 is asked for, but this host shows no GPU"},
    {.name = "AGpuBeyondTheLastIsAnError",
     .choice = {Kind::kCuda, 2},
     .gpus = 2,
     .error = "device: cuda:2 is asked for, but GPUs go from cuda:0 to cuda:1"},
};
SLUICE_TABLE(ChooseGpuTable, kChooseGpuRows);

TEST(ChooseGpu, DoesNotCountGpusIfTheCpuIsChosen) {
  const auto never = []() -> absl::StatusOr<int> {
    ADD_FAILURE() << "asked";
    return 0;
  };
  EXPECT_EQ(ChooseGpu({Kind::kCpu}, never).value(), std::nullopt);
}

TEST(MakeBackend, MakesTheCpuBackendOnRequest) {
  const auto backend = MakeBackend({Kind::kCpu}, {.threads = 1}, {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().device, "cpu");
}

// No host that runs the tests has more GPUs than this index.
TEST(MakeBackend, AMissingGpuIsAnError) {
  const auto backend = MakeBackend({Kind::kCuda, 1000}, {}, {});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()),
              testing::StartsWith("device: cuda:1000 is asked for, but "));
}

}  // namespace
}  // namespace sluice
