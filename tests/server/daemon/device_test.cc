#include "server/daemon/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using Kind = DeviceChoice::Kind;

TEST(ChooseGpu, IsATable) {
  const absl::Status absent = absl::FailedPreconditionError("no driver");
  struct Case {
    DeviceChoice choice;
    absl::StatusOr<int> gpus;
    std::optional<int> chosen;
    const char* error = "";
  };
  const Case cases[] = {
      {{Kind::kAuto}, absent, std::nullopt},
      {{Kind::kAuto}, 0, std::nullopt},
      {{Kind::kAuto}, 2, 0},
      {{Kind::kCpu}, 2, std::nullopt},
      {{Kind::kCuda, 0}, 1, 0},
      {{Kind::kCuda, 1}, 2, 1},
      {{Kind::kCuda, 0}, absent, {}, "device: cuda:0 is asked for, but no driver"},
      {{Kind::kCuda, 3}, 0, {}, "device: cuda:3 is asked for, but this host shows no GPU"},
      {{Kind::kCuda, 2}, 2, {}, "device: cuda:2 is asked for, but GPUs go from cuda:0 to cuda:1"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(&c - cases);
    const auto chosen = ChooseGpu(c.choice, [&c] { return c.gpus; });
    EXPECT_EQ(chosen.ok(), std::string(c.error).empty());
    EXPECT_EQ(std::string(chosen.status().message()), c.error);
    EXPECT_EQ(chosen.value_or(std::nullopt), c.chosen);
  }
}

TEST(ChooseGpu, AsksForNoGpuWhereTheCpuServes) {
  const auto never = []() -> absl::StatusOr<int> {
    ADD_FAILURE() << "asked";
    return 0;
  };
  EXPECT_EQ(ChooseGpu({Kind::kCpu}, never).value(), std::nullopt);
}

TEST(MakeBackend, TheCpuServesWhereItIsAskedFor) {
  const auto backend = MakeBackend({Kind::kCpu}, {.threads = 1}, {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().device, "cpu");
}

// Hosts of more GPUs than this are none that tests run on.
TEST(MakeBackend, AGpuThatThereIsNotIsAnError) {
  const auto backend = MakeBackend({Kind::kCuda, 1000}, {}, {});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()),
              testing::StartsWith("device: cuda:1000 is asked for, but "));
}

}  // namespace
}  // namespace sluice
