#include "server/daemon/tuning.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "base/check.h"

namespace sluice {

void TuneProcess() {
  constexpr int kOwnMapping = 1 << 20;
  constexpr int kTrim = 8 << 20;
  mallopt(M_ARENA_MAX, std::max(2, static_cast<int>(std::thread::hardware_concurrency())));
  mallopt(M_MMAP_THRESHOLD, kOwnMapping);
  mallopt(M_TRIM_THRESHOLD, kTrim);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

void OpenStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open returns the lowest free number, which is `fd`.
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) SLUICE_CHECK(open("/dev/null", O_RDWR) == fd);
  }
}

void TrimHeaps() { malloc_trim(0); }

}  // namespace sluice
