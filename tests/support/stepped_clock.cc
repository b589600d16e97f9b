// A library that tests preload into a daemon. It steps the daemon's wall clock.
//
// SLUICE_CLOCK_STEP is a file with a number of nanoseconds (int64, little-endian) that the library
// adds to the wall clock. The file is mapped, so a test may change it while the daemon runs.
// Timeouts that are points of the wall clock are converted back when a wait begins. Unlike in the
// kernel, a step does not change waits that have begun.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t Step() {
  static const std::atomic<int64_t>* const mapped = [] {
    static const std::atomic<int64_t> none = 0;
    const char* const path = std::getenv("SLUICE_CLOCK_STEP");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void* const memory =
        file < 0 ? MAP_FAILED : mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    return memory == MAP_FAILED ? &none : static_cast<const std::atomic<int64_t>*>(memory);
  }();
  return mapped->load();
}

timespec Shifted(const timespec& time, int64_t by) {
  const int64_t sum = time.tv_sec * kSecond + time.tv_nsec + by;
  return {.tv_sec = sum / kSecond, .tv_nsec = sum % kSecond};
}

bool IsWallClock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The real function with this name, looked up once.
#define NEXT(name) static auto* const next = Next<decltype(name)>(#name)

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  NEXT(clock_gettime);
  const int result = next(clock, now);
  if (result == 0 && IsWallClock(clock)) *now = Shifted(*now, Step());
  return result;
}

int gettimeofday(timeval* now, void* zone) noexcept {
  (void)zone;
  timespec time{};
  const int result = clock_gettime(CLOCK_REALTIME, &time);
  *now = {.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000};
  return result;
}

time_t time(time_t* into) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}

// Condition variables of this process that use the monotonic clock wait by other functions:
// libstdc++ by pthread_cond_clockwait, and Abseil by futexes.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  NEXT(pthread_cond_clockwait);
  const timespec real = IsWallClock(clock) ? Shifted(*until, -Step()) : *until;
  return next(condition, mutex, clock, &real);
}

// Abseil waits by this for points of the wall clock.
long syscall(long number, ...) noexcept {
  va_list more;
  va_start(more, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(more, long);
  va_end(more);
  NEXT(syscall);
  timespec real{};
  const bool timed = number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0;
  if (timed && arguments[3] != 0) {
    real = Shifted(*reinterpret_cast<const timespec*>(arguments[3]), -Step());
    arguments[3] = reinterpret_cast<long>(&real);
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

}  // extern "C"
