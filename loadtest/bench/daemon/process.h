// Runs a child process for a measurement.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::loadtest {

class ChildProcess {
 public:
  // Starts argv[0], a path or the name of a program in PATH. Discards its standard output; its
  // standard error stays visible.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& argv);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Ends the process with SIGTERM and waits for it.
  ~ChildProcess();

  // Returns the user and system time of all its threads since it started, in steps of a clock tick.
  absl::StatusOr<absl::Duration> CpuTime() const;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// Returns a TCP port of the loopback interface that was free a moment ago.
absl::StatusOr<int> FreePort();

}  // namespace sluice::loadtest
