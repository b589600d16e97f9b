// Makes the start of threads fail, as it does at pids.max of a container.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "base/check.h"

namespace sluice {

// While it exists, the process can start at most `threads` threads: each needs a large stack, and
// the address space has room for this many.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) {
    constexpr rlim_t kStack = rlim_t{1} << 30;
    SLUICE_CHECK(pthread_getattr_default_np(&attributes_) == 0);
    pthread_attr_t large = attributes_;
    SLUICE_CHECK(pthread_attr_setstacksize(&large, kStack) == 0 &&
                 pthread_setattr_default_np(&large) == 0);
    SLUICE_CHECK(getrlimit(RLIMIT_AS, &limit_) == 0);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit lower = limit_;
    // Half a stack is left for other memory.
    lower.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) +
                     static_cast<rlim_t>(threads) * kStack + kStack / 2;
    SLUICE_CHECK(pages > 0 && setrlimit(RLIMIT_AS, &lower) == 0);
  }
  ~ThreadLimit() {
    SLUICE_CHECK(setrlimit(RLIMIT_AS, &limit_) == 0);
    SLUICE_CHECK(pthread_setattr_default_np(&attributes_) == 0);
    pthread_attr_destroy(&attributes_);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  pthread_attr_t attributes_;
  rlimit limit_;
};

}  // namespace sluice
