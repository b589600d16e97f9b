// A library that tests preload into a daemon. It makes one file operation fail or kill the process.
//
// SLUICE_FAILING_FILES is PATH:N:ACTION:LOG. Operations on files whose paths start with PATH are
// counted from 1. Before each one, a line is appended to the existing file LOG. Operation N fails
// with the errno ACTION. If ACTION is 0, operation N kills the process in the middle: a write has
// then written half of its bytes. With N = 0 all operations succeed.
//
// SLUICE_FULL_WHILE is a file. While it exists, the disk of the watched files is full: of two
// writes to them, one writes half of its bytes, and the other one fails with ENOSPC.
//
// SLUICE_FILES_IN_PLACE injects a bug that tests of atomic replacement must find: data for the
// temporary file (base/atomic_file.h) is written directly to the destination file.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kDescriptors = 65536;

struct Plan {
  std::string path;
  long nth = 0;
  int action = 0;
  int log = -1;
};

const Plan& ThePlan() {
  static const Plan plan = [] {
    Plan made;
    const char* const text = std::getenv("SLUICE_FAILING_FILES");
    char path[PATH_MAX];
    char log[PATH_MAX];
    if (text != nullptr &&
        std::sscanf(text, "%4095[^:]:%ld:%d:%4095s", path, &made.nth, &made.action, log) == 4) {
      made.path = path;
      made.log =
          static_cast<int>(syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CLOEXEC, 0));
    }
    return made;
  }();
  return plan;
}

// Whether a descriptor belongs to a file or folder whose path starts with the plan's path.
std::array<std::atomic<bool>, kDescriptors> watched;
std::atomic<long> count = 0;

bool Watched(int fd) { return fd >= 0 && fd < kDescriptors && watched[static_cast<size_t>(fd)]; }
bool Watched(const char* path) {
  const std::string& beginning = ThePlan().path;
  return path != nullptr && !beginning.empty() &&
         std::strncmp(path, beginning.c_str(), beginning.size()) == 0;
}
bool Watched(int folder, const char* path) {
  return path != nullptr && path[0] != '/' ? Watched(folder) : Watched(path);
}
int Watch(int fd, bool watch) {
  if (fd >= 0 && fd < kDescriptors) watched[static_cast<size_t>(fd)] = watch;
  return fd;
}

bool DiskIsFull() {
  static const char* const flag = std::getenv("SLUICE_FULL_WHILE");
  return flag != nullptr && access(flag, F_OK) == 0;
}

// Writes to a full disk.
template <typename Half>
ssize_t WriteToFullDisk(const Half& half) {
  static std::atomic<bool> has_room = true;
  if (has_room.exchange(!has_room)) return half();
  errno = ENOSPC;
  return -1;
}

void Die() {
  kill(getpid(), SIGKILL);
  pause();
}

// Counts an operation. Returns whether it must fail, with errno set. If it must kill the process,
// calls `first` and then does so.
template <typename First>
bool Fails(const char* name, const char* path, const First& first) {
  const Plan& plan = ThePlan();
  const long number = ++count;
  char line[256];
  const int size = std::snprintf(line, sizeof(line), "%ld %s %.200s\n", number, name,
                                 path == nullptr ? "" : path);
  syscall(SYS_write, plan.log, line, std::min<size_t>(static_cast<size_t>(size), sizeof(line) - 1));
  if (number != plan.nth) return false;
  if (plan.action == 0) {
    first();
    Die();
  }
  errno = plan.action;
  return true;
}
bool Fails(const char* name, const char* path) {
  return Fails(name, path, [] {});
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The real function with this name, looked up once.
#define NEXT(name) static auto* const next = Next<decltype(name)>(#name)

// Returns the length of the path without the suffix of a temporary file. Returns 0 if it has no
// such suffix or SLUICE_FILES_IN_PLACE is not set.
size_t ReplacedPath(const char* path) {
  static const bool in_place = std::getenv("SLUICE_FILES_IN_PLACE") != nullptr;
  const char* const end = in_place ? std::strstr(path, ".tmp.") : nullptr;
  return end == nullptr ? 0 : static_cast<size_t>(end - path);
}

mode_t ModeOf(int flags, va_list more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

#define DEFINE_OPEN(name)                                                                    \
  int name(const char* path, int flags, ...) {                                               \
    va_list more;                                                                            \
    va_start(more, flags);                                                                   \
    const mode_t mode = ModeOf(flags, more);                                                 \
    va_end(more);                                                                            \
    NEXT(name);                                                                              \
    if (!Watched(path)) return Watch(next(path, flags, mode), false);                        \
    if (Fails("open", path)) return -1;                                                      \
    if (const size_t size = ReplacedPath(path)) {                                            \
      return Watch(next(std::string(path, size).c_str(), (flags & ~O_EXCL) | O_TRUNC, mode), \
                   true);                                                                    \
    }                                                                                        \
    return Watch(next(path, flags, mode), true);                                             \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                                           \
  int name(int folder, const char* path, int flags, ...) {                            \
    va_list more;                                                                     \
    va_start(more, flags);                                                            \
    const mode_t mode = ModeOf(flags, more);                                          \
    va_end(more);                                                                     \
    NEXT(name);                                                                       \
    if (!Watched(folder, path)) return Watch(next(folder, path, flags, mode), false); \
    return Fails("openat", path) ? -1 : Watch(next(folder, path, flags, mode), true); \
  }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

#define DEFINE_FOPEN(name)                                                \
  FILE* name(const char* path, const char* mode) {                        \
    NEXT(name);                                                           \
    if (!Watched(path)) return next(path, mode);                          \
    FILE* const file = Fails("fopen", path) ? nullptr : next(path, mode); \
    if (file != nullptr) Watch(fileno(file), true);                       \
    return file;                                                          \
  }
DEFINE_FOPEN(fopen)
DEFINE_FOPEN(fopen64)

int fclose(FILE* file) {
  NEXT(fclose);
  Watch(fileno(file), false);
  return next(file);
}

int close(int fd) {
  NEXT(close);
  Watch(fd, false);
  return next(fd);
}

DIR* opendir(const char* path) {
  NEXT(opendir);
  return Watched(path) && Fails("opendir", path) ? nullptr : next(path);
}

DIR* fdopendir(int fd) {
  NEXT(fdopendir);
  return Watched(fd) && Fails("fdopendir", nullptr) ? nullptr : next(fd);
}

ssize_t read(int fd, void* into, size_t size) {
  NEXT(read);
  return Watched(fd) && Fails("read", nullptr) ? -1 : next(fd, into, size);
}

#define DEFINE_PREAD(name)                                                         \
  ssize_t name(int fd, void* into, size_t size, off_t at) {                        \
    NEXT(name);                                                                    \
    return Watched(fd) && Fails("pread", nullptr) ? -1 : next(fd, into, size, at); \
  }
DEFINE_PREAD(pread)
DEFINE_PREAD(pread64)

ssize_t write(int fd, const void* from, size_t size) {
  NEXT(write);
  const auto half = [&] { return next(fd, from, size / 2); };
  if (Watched(fd) && Fails("write", nullptr, half)) return -1;
  return Watched(fd) && DiskIsFull() ? WriteToFullDisk(half) : next(fd, from, size);
}

ssize_t writev(int fd, const iovec* from, int count) {
  NEXT(writev);
  const auto half = [&] { next(fd, from, count / 2); };
  return Watched(fd) && Fails("writev", nullptr, half) ? -1 : next(fd, from, count);
}

int fsync(int fd) {
  NEXT(fsync);
  return Watched(fd) && Fails("fsync", nullptr) ? -1 : next(fd);
}

#define DEFINE_FTRUNCATE(name)                                               \
  int name(int fd, off_t size) {                                             \
    NEXT(name);                                                              \
    return Watched(fd) && Fails("ftruncate", nullptr) ? -1 : next(fd, size); \
  }
DEFINE_FTRUNCATE(ftruncate)
DEFINE_FTRUNCATE(ftruncate64)

int fstat(int fd, struct stat* into) noexcept {
  NEXT(fstat);
  return Watched(fd) && Fails("fstat", nullptr) ? -1 : next(fd, into);
}

int stat(const char* path, struct stat* into) noexcept {
  NEXT(stat);
  return Watched(path) && Fails("stat", path) ? -1 : next(path, into);
}

int rename(const char* from, const char* to) noexcept {
  NEXT(rename);
  if (Watched(from) && Fails("rename", to)) return -1;
  return Watched(from) && ReplacedPath(from) > 0 ? 0 : next(from, to);
}

#define DEFINE_MMAP(name)                                                                          \
  void* name(void* address, size_t size, int protection, int flags, int fd, off_t at) noexcept {   \
    NEXT(name);                                                                                    \
    return Watched(fd) && Fails("mmap", nullptr) ? MAP_FAILED                                      \
                                                 : next(address, size, protection, flags, fd, at); \
  }
DEFINE_MMAP(mmap)
DEFINE_MMAP(mmap64)

}  // extern "C"
