#include "server/security/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/read_file.h"

namespace sluice {
namespace {

absl::Status SystemError(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  // O_NONBLOCK avoids blocking if the path is a pipe.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (file.get() < 0 || fstat(file.get(), &facts) != 0) return SystemError(path);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return ReadFile(file.get(), path, kMaxSecretFileBytes);
}

bool IsWorldWritable(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && (facts.st_mode & S_IWOTH) != 0;
}

}  // namespace sluice
