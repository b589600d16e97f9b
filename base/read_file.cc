#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"

namespace sluice {
namespace {

constexpr size_t kFirstBytes = 16 << 10;

absl::Status ReadError(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes) {
  // O_NONBLOCK, because the open of a named pipe would otherwise wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (file.get() < 0 || fstat(file.get(), &facts) != 0) return ReadError(path);
  if (!S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file; name a regular file"));
  }
  return ReadFile(file.get(), path, most_bytes);
}

absl::StatusOr<std::string> ReadFile(int descriptor, const std::string& path, size_t most_bytes) {
  std::string text;
  size_t size = 0;
  for (;;) {
    if (size == text.size()) text.resize(std::min(std::max(2 * size, kFirstBytes), most_bytes + 1));
    const ssize_t count = read(descriptor, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ReadError(path);
    if (count == 0) break;
    size += count;
    if (size > most_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has more than ", most_bytes, " bytes"));
    }
  }
  text.resize(size);
  return text;
}

}  // namespace sluice
