#include "server/daemon/cgroup_follower.h"

#include "kernels/cpu/thread_pool.h"
#include "server/common/memory_limits.h"

namespace sluice {

void CgroupFollower::Look() {
  if (const int cpus = kernels::AvailableCpus(parts_.read); cpus != parts_.cpus) ApplyCpus(cpus);
  if (const int64_t bytes = ProcessMemoryLimit(memory_, parts_.read); bytes != parts_.bytes) {
    ApplyMemory(bytes);
  }
}

void CgroupFollower::ApplyCpus(int cpus) {
  const int threads = parts_.set_cpus(cpus);
  if (threads > 0) {
    parts_.log->Info("CPUs of the cgroup changed",
                     {{"from", parts_.cpus}, {"to", cpus}, {"threads", threads}});
  }
  if (threads > 0 && threads < cpus) {
    parts_.log->Warn("restart the daemon to use all CPUs", {{"cpus", cpus}, {"threads", threads}});
  }
  parts_.cpus = cpus;
}

void CgroupFollower::ApplyMemory(int64_t bytes) {
  parts_.set_memory(bytes);
  parts_.log->Info("memory of the cgroup changed", {{"from", parts_.bytes}, {"to", bytes}});
  parts_.bytes = bytes;
}

}  // namespace sluice
