#include "server/security/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"

namespace sluice {
namespace {

absl::Status SystemError(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  // O_NONBLOCK keeps a pipe in place of the file from blocking.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (file.get() < 0 || fstat(file.get(), &facts) != 0) return SystemError(path);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  std::string text(kMaxSecretFileBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path);
    if (count == 0) break;
    size += count;
  }
  if (size > kMaxSecretFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", kMaxSecretFileBytes, " bytes"));
  }
  text.resize(size);
  return text;
}

}  // namespace sluice
