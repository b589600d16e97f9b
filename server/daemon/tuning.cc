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

namespace {

// Opens /dev/null for each of the descriptors 0 to 2 that is closed. Otherwise sockets would get
// these numbers, and the log would be written to them.
void OpenStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open returns the lowest free number, which is `fd`.
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) SLUICE_CHECK(open("/dev/null", O_RDWR) == fd);
  }
}

// Runs before the initialisers of shared libraries, because some of them open descriptors.
[[gnu::section(".preinit_array"), gnu::used]] void (*const open_first)() = OpenStandardDescriptors;

}  // namespace

void TrimHeaps() { malloc_trim(0); }

}  // namespace sluice
