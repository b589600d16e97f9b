#include "server/daemon/cgroup_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kCpu[] = "/sys/fs/cgroup/cpu.max";
constexpr char kMemory[] = "/sys/fs/cgroup/memory.max";

class CgroupFollowerTest : public testing::Test {
 protected:
  CgroupFollower Make(const MemoryOptions& options = {}) {
    return CgroupFollower(options,
                          {.cpus = 1,
                           .bytes = 1000,
                           .read = [this](const std::string& path) -> std::optional<std::string> {
                             const auto file = files_.find(path);
                             if (file == files_.end()) return std::nullopt;
                             return file->second;
                           },
                           .set_cpus =
                               [this](int cpus) {
                                 cpus_.push_back(cpus);
                                 return cpus;
                               },
                           .set_memory = [this](int64_t bytes) { bytes_.push_back(bytes); },
                           .log = log_.get()});
  }

  std::map<std::string, std::string> files_ = {
      {"/proc/self/cgroup", "0::/\n"}, {kCpu, "100000 100000\n"}, {kMemory, "1000\n"}};
  const std::unique_ptr<Log> log_ = *Log::Create({.level = "off"});
  std::vector<int> cpus_;
  std::vector<int64_t> bytes_;
};

TEST_F(CgroupFollowerTest, AppliesEachChangeOnce) {
  CgroupFollower follower = Make();
  follower.Look();
  EXPECT_THAT(cpus_, IsEmpty());
  EXPECT_THAT(bytes_, IsEmpty());
  files_[kMemory] = "2000\n";
  follower.Look();
  follower.Look();
  EXPECT_THAT(bytes_, ElementsAre(2000));
  files_[kMemory] = "500\n";
  follower.Look();
  EXPECT_THAT(bytes_, ElementsAre(2000, 500));
  EXPECT_THAT(cpus_, IsEmpty());
}

TEST_F(CgroupFollowerTest, WithoutAQuotaAllCpusOfTheMaskAreUsed) {
  const int all = kernels::AffinityCpus();
  if (all == 1) return;  // nothing changes
  CgroupFollower follower = Make();
  files_[kCpu] = "max 100000\n";
  follower.Look();
  EXPECT_THAT(cpus_, ElementsAre(all));
  files_[kCpu] = "50000 100000\n";
  follower.Look();
  EXPECT_THAT(cpus_, ElementsAre(all, 1));
}

TEST_F(CgroupFollowerTest, AnOptionOverridesTheMemoryOfTheCgroup) {
  CgroupFollower follower = Make({.limit_bytes = 1000});
  files_[kMemory] = "2000\n";
  follower.Look();
  EXPECT_THAT(bytes_, IsEmpty());
}

}  // namespace
}  // namespace sluice
