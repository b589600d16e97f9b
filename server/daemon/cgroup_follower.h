// Follows the limits of the process's cgroup, which may change while the daemon runs: Kubernetes
// resizes pods in place.
//
//   CgroupFollower follower(options.memory, {.cpus = AvailableCpus(), .bytes = limit,
//                                            .set_cpus = ..., .set_memory = ..., .log = &log});
//   const PeriodicThread looks(clock, kCgroupInterval, [&] { follower.Look(); });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/cgroup.h"
#include "server/common/log.h"
#include "server/common/options.h"

namespace sluice {

inline constexpr std::chrono::seconds kCgroupInterval{1};

class CgroupFollower {
 public:
  struct Parts {
    int cpus;       // those that the start has used
    int64_t bytes;  // the limit that the start has used
    std::function<std::optional<std::string>(const std::string& path)> read = ReadSystemFile;
    // Sets the number of CPUs of the process. Returns the threads in use, or 0 if an option sets
    // them.
    std::function<int(int cpus)> set_cpus;
    // Sets the limit of the process's memory in bytes.
    std::function<void(int64_t bytes)> set_memory;
    Log* log;  // not owned
  };
  CgroupFollower(const MemoryOptions& memory, Parts parts)
      : memory_(memory), parts_(std::move(parts)) {}

  // Reads the limits and applies those that have changed since the last call. server.memory and
  // cpu.threads override the cgroup.
  void Look();

 private:
  void ApplyCpus(int cpus);
  void ApplyMemory(int64_t bytes);

  const MemoryOptions memory_;
  Parts parts_;  // with the limits that were applied last
};

}  // namespace sluice
