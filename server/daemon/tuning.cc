#include "server/daemon/tuning.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace sluice {

void TuneProcess() {
  constexpr int kOwnMapping = 1 << 20;
  constexpr int kTrim = 8 << 20;
  mallopt(M_ARENA_MAX, std::max(2, static_cast<int>(std::thread::hardware_concurrency())));
  mallopt(M_MMAP_THRESHOLD, kOwnMapping);
  mallopt(M_TRIM_THRESHOLD, kTrim);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

void TrimHeaps() { malloc_trim(0); }

}  // namespace sluice
