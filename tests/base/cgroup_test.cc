#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <map>

namespace sluice {
namespace {

using Files = std::map<std::string, std::string>;

std::optional<int> Cpus(const Files& files) {
  return CgroupCpus([&](const std::string& path) -> std::optional<std::string> {
    const auto file = files.find(path);
    if (file == files.end()) return std::nullopt;
    return file->second;
  });
}

TEST(ParseCpuMaxTest, RoundsUpAndRejectsTextThatIsNotAQuota) {
  EXPECT_EQ(ParseCpuMax("200000 100000\n"), 2);
  EXPECT_EQ(ParseCpuMax("200001 100000"), 3);
  EXPECT_EQ(ParseCpuMax("1 100000"), 1);
  EXPECT_EQ(ParseCpuMax("9223372036854775807 1"), 1 << 20);
  for (const char* text : {"max 100000", "", "100000", "-1 100000", "0 100000", "100000 0", "a b",
                           "100000 100000 x", "99999999999999999999 1"}) {
    EXPECT_EQ(ParseCpuMax(text), std::nullopt) << text;
  }
}

TEST(CgroupCpusTest, TakesTheLeastQuotaOfAllAncestorsInV2) {
  const Files files = {{"/proc/self/cgroup", "0::/a/b\n"},
                       {"/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"},
                       {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
                       {"/sys/fs/cgroup/cpu.max", "max 100000\n"}};
  EXPECT_EQ(Cpus(files), 3);
}

TEST(CgroupCpusTest, ReadsTheMountWhenTheContainerHidesThePath) {
  EXPECT_EQ(Cpus({{"/proc/self/cgroup", "0::/not/visible\n"},
                  {"/sys/fs/cgroup/cpu.max", "150000 100000\n"}}),
            2);
}

TEST(CgroupCpusTest, ReadsTheCpuControllerOfV1) {
  const Files files = {{"/proc/self/cgroup",
                        "5:cpuset:/c\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n0::/\n"},
                       {"/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n"},
                       {"/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n"},
                       {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n"},
                       {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}};
  EXPECT_EQ(Cpus(files), 4);
}

TEST(CgroupCpusTest, IsUnknownWithoutALimit) {
  EXPECT_EQ(Cpus({}), std::nullopt);
  EXPECT_EQ(Cpus({{"/proc/self/cgroup", ""}}), std::nullopt);
  EXPECT_EQ(Cpus({{"/proc/self/cgroup", "nonsense\n::\n0:relative\n0::relative\n"}}), std::nullopt);
}

TEST(CgroupMemoryTest, TakesTheLeastLimitOfEitherVersion) {
  const auto granted = [](const Files& files) {
    return CgroupMemory([&](const std::string& path) -> std::optional<std::string> {
      const auto file = files.find(path);
      if (file == files.end()) return std::nullopt;
      return file->second;
    });
  };
  Files files = {{"/proc/self/cgroup", "0::/a/b\n"},
                 {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
                 {"/sys/fs/cgroup/a/b/memory.current", "4999\n"},
                 {"/sys/fs/cgroup/a/memory.max", "5000\n"},
                 {"/sys/fs/cgroup/memory.max", "9000\n"}};
  EXPECT_EQ(granted(files), 5000) << "used memory makes no difference";
  files["/proc/self/cgroup"] = "4:memory:/docker/x\n0::/\n";
  EXPECT_EQ(granted(files), 9000);
  files["/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes"] = "900\n";
  EXPECT_EQ(granted(files), 900);
  EXPECT_EQ(granted({{"/proc/self/cgroup", "0::/a\n"}}), std::nullopt);
  EXPECT_EQ(granted({}), std::nullopt);
}

std::optional<int64_t> Memory(const Files& files) {
  return CgroupFreeMemory([&](const std::string& path) -> std::optional<std::string> {
    const auto file = files.find(path);
    if (file == files.end()) return std::nullopt;
    return file->second;
  });
}

TEST(FreeMemoryTest, TakesTheLeastRemainderOfAllCgroups) {
  Files files = {{"/proc/self/cgroup", "0::/a/b\n"},
                 {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
                 {"/sys/fs/cgroup/a/b/memory.current", "100\n"},
                 {"/sys/fs/cgroup/a/memory.max", "5000\n"},
                 {"/sys/fs/cgroup/a/memory.current", "1000\n"},
                 {"/proc/meminfo", "MemTotal:       100 kB\nMemAvailable:    7 kB\n"}};
  EXPECT_EQ(Memory(files), 4000);
  files["/proc/meminfo"] = "MemAvailable:    3 kB\n";
  EXPECT_EQ(Memory(files), 3 * 1024);
  files["/sys/fs/cgroup/a/memory.current"] = "6000\n";
  EXPECT_EQ(Memory(files), 0);
}

TEST(FreeMemoryTest, ReadsTheMemoryControllerOfV1) {
  EXPECT_EQ(Memory({{"/proc/self/cgroup", "4:memory:/docker/x\n"},
                    {"/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "900\n"},
                    {"/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "200\n"},
                    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}}),
            700);
}

TEST(FreeMemoryTest, IsUnknownIfNoFileStatesIt) {
  EXPECT_EQ(Memory({}), std::nullopt);
  EXPECT_EQ(Memory({{"/proc/meminfo", "MemAvailable: many kB\nMemFree: 3 kB"}}), std::nullopt);
  EXPECT_EQ(Memory({{"/proc/meminfo", "MemAvailable: 9223372036854775807 kB"}}), std::nullopt);
}

}  // namespace
}  // namespace sluice
