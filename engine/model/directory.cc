#include "engine/model/directory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// A name that a file may have given, fit for a message.
std::string Shown(absl::string_view name) { return absl::CHexEscape(name); }

absl::Status CheckPlainName(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                     name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Shown(name.substr(0, 64)), "\" is not a plain file name"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  return OpenAt(AT_FDCWD, path, 0);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::OpenAt(int directory,
                                                                     const std::string& name,
                                                                     int flags) {
  // Non-blocking, so that a FIFO under the name cannot hang us before it is refused.
  const int fd = openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  if (fd < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(Shown(name), " is a symbolic link"));
  }
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", Shown(name)));
  const absl::Cleanup close_file = [fd] { close(fd); };

  struct stat info;
  if (fstat(fd, &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Shown(name)));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(Shown(name), " is not a regular file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {  // an empty file cannot be mapped
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", Shown(name)));
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<void*>(data_), size_);
}

absl::StatusOr<Directory> Directory::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open directory ", Shown(path)));
  return Directory(fd);
}

Directory::Directory(Directory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

Directory::~Directory() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool Directory::Has(const std::string& name) const {
  struct stat info;
  return CheckPlainName(name).ok() &&
         fstatat(descriptor_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> Directory::Map(const std::string& name) const {
  if (absl::Status status = CheckPlainName(name); !status.ok()) return status;
  return MappedFile::OpenAt(descriptor_, name, O_NOFOLLOW);
}

absl::StatusOr<std::string> Directory::Read(const std::string& name, size_t max_bytes) const {
  auto file = Map(name);
  if (!file.ok()) return file.status();
  const std::string_view bytes = (*file)->bytes();
  if (bytes.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(name), " has ", bytes.size(), " bytes, the limit is ", max_bytes));
  }
  return std::string(bytes);
}

}  // namespace sluice
