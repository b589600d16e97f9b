#include "server/common/memory_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

ServerOptions Limited(int64_t bytes) {
  ServerOptions options;
  options.memory.limit_bytes = bytes;
  return WithMemoryShares(options);
}

TEST(MemoryLimitsTest, TheDefaultsAreSharesOfTheLimitAndFitIt) {
  for (const int64_t mib : {256, 512, 2048, 65536}) {
    const ServerOptions options = Limited(mib * kMiB);
    EXPECT_EQ(options.grpc.memory_quota_bytes, mib * kMiB / 4);
    EXPECT_EQ(options.grpc.max_unread_bytes, mib * kMiB / 8);
    EXPECT_EQ(options.grpc.max_calls, mib * 2);
    const EngineOptions engine = WithMemoryShares(EngineOptions(), mib * kMiB, 1);
    EXPECT_EQ(engine.queue.max_bytes, std::min(mib * kMiB / 16, 1024 * kMiB));
    const MemoryLimits limits = ComputeMemoryLimits(options, engine.queue.max_bytes, 1, 50 * kMiB);
    EXPECT_TRUE(limits.Check().ok()) << limits.Text();
    EXPECT_GT(limits.sum(), mib * kMiB * 3 / 8) << "the two shares only";
  }
  EXPECT_GT(ProcessMemoryLimit({}), 64 * kMiB) << "the memory of the machine or the cgroup";
}

TEST(MemoryLimitsTest, ALimitAboveTheMemoryOfTheCgroupOrTheMachineIsAWarning) {
  std::string cgroup = "max\n";
  const auto warning = [&cgroup](int64_t bytes) {
    return MemoryLimitWarning({.limit_bytes = bytes},
                              [&](const std::string& path) -> std::optional<std::string> {
                                if (path == "/proc/self/cgroup") return "0::/\n";
                                if (path == "/sys/fs/cgroup/memory.max") return cgroup;
                                return std::nullopt;
                              });
  };
  EXPECT_EQ(warning(0), "");
  EXPECT_EQ(warning(kMiB), "");
  EXPECT_THAT(warning(int64_t{1} << 60), HasSubstr("MiB, but the machine has "));
  cgroup = std::to_string(30 * kMiB) + "\n";
  EXPECT_EQ(warning(30 * kMiB), "");
  EXPECT_EQ(
      warning(31 * kMiB),
      "server.memory.limit_bytes is 31.0 MiB, but the cgroup has 30.0 MiB. The system may end "
      "the process before it reaches the limit. Lower the option, or remove it to use all of "
      "this memory");
}

TEST(MemoryLimitsTest, TheLargestMessageFitsTheQuota) {
  EXPECT_EQ(Limited(2048 * kMiB).grpc.max_message_bytes, 64 * kMiB);
  for (const int64_t mib : {64, 256, 319, 2048}) {
    const GrpcOptions options = Limited(mib * kMiB).grpc;
    EXPECT_LE(options.max_message_bytes, options.memory_quota_bytes / 5 * 4) << mib;
    EXPECT_EQ(CheckMessageSize(options), absl::OkStatus()) << mib;
  }
  ServerOptions chosen;
  chosen.memory.limit_bytes = 2048 * kMiB;
  chosen.grpc.memory_quota_bytes = 10'000;
  EXPECT_EQ(WithMemoryShares(chosen).grpc.max_message_bytes, 8000);
  const auto check = [&chosen](int64_t message_bytes) {
    chosen.grpc.max_message_bytes = message_bytes;
    return CheckMessageSize(WithMemoryShares(chosen).grpc);
  };
  EXPECT_EQ(check(8000), absl::OkStatus());
  EXPECT_NE(check(8001), absl::OkStatus());
  EXPECT_EQ(check(1024), absl::OkStatus());
  EXPECT_NE(check(1023), absl::OkStatus());
  for (const int64_t quota : {1, 64, 1000}) {
    chosen.grpc.memory_quota_bytes = quota;
    EXPECT_THAT(std::string(check(0).message()), HasSubstr("must be at least 1024")) << quota;
  }
  chosen.grpc.memory_quota_bytes = 0;
  EXPECT_EQ(check(409 * kMiB), absl::OkStatus());
  chosen.memory.limit_bytes = 128 * kMiB;
  for (const int64_t mib : {63, 64, 65}) EXPECT_NE(check(mib * kMiB), absl::OkStatus()) << mib;
  chosen.memory.limit_bytes = 2048 * kMiB;
  const absl::Status status = check(1024 * kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("max_message_bytes is 1073741824, but only 429496720 bytes"));
}

TEST(MemoryLimitsTest, TheQueuesOfAllModelsShareASixteenth) {
  for (const int64_t models : {1, 4, 5, 20, 100}) {
    const ServerOptions options = Limited(2048 * kMiB);
    const int64_t queue = WithMemoryShares(EngineOptions(), 2048 * kMiB, models).queue.max_bytes;
    EXPECT_EQ(queue, 128 * kMiB / models) << models;
    const MemoryLimits limits = ComputeMemoryLimits(options, queue, models, 50 * kMiB);
    EXPECT_TRUE(limits.Check().ok()) << limits.Text();
  }
}

TEST(MemoryLimitsTest, KeepsConfiguredValues) {
  ServerOptions options;
  options.memory.limit_bytes = 1024 * kMiB;
  options.grpc.memory_quota_bytes = 11;
  options.grpc.max_unread_bytes = 12;
  options.grpc.max_calls = 1000;
  EngineOptions engine;
  engine.queue.max_bytes = 13;
  const MemoryLimits limits = ComputeMemoryLimits(
      WithMemoryShares(options), WithMemoryShares(engine, 1024 * kMiB, 3).queue.max_bytes, 3, 14);
  EXPECT_EQ(limits.Of("messages"), 11);
  EXPECT_EQ(limits.Of("unread_answers"), 12);
  EXPECT_EQ(limits.Of("calls"), 4 * 1000 * (8 << 10));
  EXPECT_EQ(limits.Of("queue"), 39);
  EXPECT_EQ(limits.Of("process"), 14);
  EXPECT_EQ(limits.Of("nothing"), 0);
}

TEST(MemoryLimitsTest, AnErrorNamesEachLineAndItsOption) {
  MemoryLimits limits{.limit = 30 * kMiB,
                      .lines = {{"a", 10 * kMiB, "option.a"}, {"b", 20 * kMiB, "option.b"}}};
  EXPECT_TRUE(limits.Check().ok()) << "exactly the limit";
  limits.lines[1].bytes += 1;
  const absl::Status status = limits.Check();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("30.0 MiB of 30.0 MiB (server.memory.limit_bytes): "
                                 "a 10.0 MiB (option.a), b 20.0 MiB (option.b)"));
}

TEST(MemoryLimitsTest, WeightsThatDoNotFitAreRefusedWithTheMissingAmount) {
  const MemoryLimits limits{.limit = 30 * kMiB, .lines = {{"a", 10 * kMiB, "option.a"}}};
  EXPECT_EQ(CheckWeights(limits, 20 * kMiB), absl::OkStatus()) << "exactly the free memory";
  const absl::Status status = CheckWeights(limits, 20 * kMiB + kMiB / 2);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("take 20.5 MiB, but only 20.0 MiB are free for models: 0.5 MiB are missing"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("a 10.0 MiB (option.a)"));
  const MemoryLimits full{.limit = 5 * kMiB, .lines = {{"a", 10 * kMiB, "option.a"}}};
  EXPECT_THAT(std::string(CheckWeights(full, kMiB).message()), HasSubstr("only 0.0 MiB are free"));
}

TEST(MemoryLimitsTest, ModelsCountTheirHostMemory) {
  ModelStats one;
  one.weight_bytes = 1;
  one.copied_bytes = 10;
  one.adapters = {.bytes = 7000, .limit_bytes = 1'000'000};
  one.mapped_bytes = 5000;
  one.plan_memory_bytes = 100;
  one.slot_memory = {.activations = 1, .activation_room = 1000, .kv = 10'000, .pinned = 100'000};
  const std::vector<ModelStats> models = {one, one};
  MemoryLimits cpu;
  AddModels(models, /*on_cpu=*/true, &cpu);
  EXPECT_EQ(cpu.sum(), 2 * 1'111'111) << "the system drops mapped pages";
  MemoryLimits gpu;
  AddModels(models, /*on_cpu=*/false, &gpu);
  EXPECT_EQ(gpu.sum(), 2 * 100'010);
}

}  // namespace
}  // namespace sluice
