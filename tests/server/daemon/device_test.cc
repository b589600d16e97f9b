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
  absl::Status opened = absl::OkStatus();
  std::optional<int> chosen = std::nullopt;
  const char* warning = "";
  absl::Status error = absl::OkStatus();
};
class ChooseGpuTable : public TableTest<ChooseGpuRow> {};

TEST_P(ChooseGpuTable, ChoosesADeviceOrExplainsTheError) {
  std::optional<int> opened;
  const auto chosen = ChooseGpu(row().choice, {.count = [] { return row().gpus; },
                                               .open =
                                                   [&](int index) {
                                                     opened = index;
                                                     return row().opened;
                                                   }});
  EXPECT_EQ(chosen.status(), row().error);
  EXPECT_EQ(chosen.value_or(GpuChoice{}).index, row().chosen);
  EXPECT_EQ(chosen.value_or(GpuChoice{}).warning, row().warning);
  if (row().chosen) {
    EXPECT_EQ(opened, row().chosen);
  }
}

const ChooseGpuRow kChooseGpuRows[] = {
    {.name = "AutoIsTheCpuInABuildWithoutCuda",
     .choice = {Kind::kAuto},
     .gpus = absl::UnimplementedError("no CUDA")},
    {.name = "AutoIsTheCpuWithoutADriver",
     .choice = {Kind::kAuto},
     .gpus = absl::NotFoundError("no driver")},
    {.name = "AutoWarnsOfADriverThatIsTooOld",
     .choice = {Kind::kAuto},
     .gpus = absl::FailedPreconditionError("the driver is too old"),
     .warning = "the driver is too old"},
    {.name = "AutoIsTheCpuOnAHostWithoutGpus", .choice = {Kind::kAuto}, .gpus = 0},
    {.name = "AutoIsTheFirstGpu", .choice = {Kind::kAuto}, .gpus = 2, .chosen = 0},
    {.name = "AutoWarnsOfAGpuThatLacksSomething",
     .choice = {Kind::kAuto},
     .gpus = 1,
     .opened = absl::FailedPreconditionError("GPU 0 is too old"),
     .warning = "GPU 0 is too old"},
    {.name = "AutoFailsIfItsGpuFails",
     .choice = {Kind::kAuto},
     .gpus = 1,
     .opened = absl::UnavailableError("GPU 0 is broken"),
     .error = absl::UnavailableError("GPU 0 is broken")},
    {.name = "TheCpuServesOnRequestEvenWithGpus", .choice = {Kind::kCpu}, .gpus = 2},
    {.name = "TheOnlyGpuServes", .choice = {Kind::kCuda, 0}, .gpus = 1, .chosen = 0},
    {.name = "TheLastGpuServes", .choice = {Kind::kCuda, 1}, .gpus = 2, .chosen = 1},
    {.name = "AGpuNeedsADriver",
     .choice = {Kind::kCuda, 0},
     .gpus = absl::NotFoundError("no driver"),
     .error = absl::FailedPreconditionError("device: cuda:0 is configured, but no driver")},
    {.name = "AGpuNeedsAHostThatHasSome",
     .choice = {Kind::kCuda, 3},
     .gpus = 0,
     .error = absl::FailedPreconditionError(
         "device: cuda:3 is configured, but this host has no visible GPU; "
         "set device to auto or cpu")},
    {.name = "AGpuBeyondTheLastIsAnError",
     .choice = {Kind::kCuda, 2},
     .gpus = 2,
     .error = absl::FailedPreconditionError(
         "device: cuda:2 is configured, but the GPUs are cuda:0 to cuda:1")},
    {.name = "ARequestedGpuMustBeUsable",
     .choice = {Kind::kCuda, 0},
     .gpus = 1,
     .opened = absl::FailedPreconditionError("GPU 0 is too old"),
     .error = absl::FailedPreconditionError("GPU 0 is too old")},
};
SLUICE_TABLE(ChooseGpuTable, kChooseGpuRows);

TEST(ChooseGpu, DoesNotCountGpusIfTheCpuIsChosen) {
  const auto never = []() -> absl::StatusOr<int> {
    ADD_FAILURE() << "asked";
    return 0;
  };
  EXPECT_EQ(ChooseGpu({Kind::kCpu}, {.count = never, .open = nullptr}).value().index, std::nullopt);
}

TEST(MakeBackend, MakesTheCpuBackendOnRequest) {
  const auto backend = MakeBackend({Kind::kCpu}, {.threads = 1}, {}, {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ(backend->backend->info().device, "cpu");
  EXPECT_TRUE(backend->warnings.empty());
}

TEST(CheckGpuAttention, AGpuSupportsOnlyOnePass) {
  using Variant = AttentionVariant::Kind;
  EXPECT_TRUE(CheckGpuAttention({.variant = {Variant::kAuto}}, 1).ok());
  EXPECT_TRUE(CheckGpuAttention({.variant = {Variant::kOnePass}}, 1).ok());
  const absl::Status status = CheckGpuAttention({.variant = {Variant::kSplit, 4}}, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              testing::StartsWith(
                  "engine.attention.variant is split:4, but cuda:1 supports only one_pass"));
}

// No host that runs the tests has more GPUs than this index.
TEST(MakeBackend, AMissingGpuIsAnError) {
  const auto backend = MakeBackend({Kind::kCuda, 1000}, {}, {}, {});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()),
              testing::StartsWith("device: cuda:1000 is configured, but "));
}

}  // namespace
}  // namespace sluice
