#include "engine/model/directory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

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

// A regular file, open for reading.
class OpenedFile {
 public:
  static absl::StatusOr<OpenedFile> At(int directory, const std::string& name, int flags) {
    // Non-blocking, so that a FIFO under the name cannot hang us before it is refused.
    OpenedFile file(openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags));
    if (file.descriptor_ < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(Shown(name), " is a symbolic link"));
    }
    if (file.descriptor_ < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", Shown(name)));
    }
    struct stat info;
    if (fstat(file.descriptor_, &info) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Shown(name)));
    }
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(Shown(name), " is not a regular file"));
    }
    file.size_ = static_cast<size_t>(info.st_size);
    return file;
  }
  ~OpenedFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenedFile(OpenedFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  OpenedFile& operator=(OpenedFile&&) = delete;

  int descriptor() const { return descriptor_; }
  size_t size() const { return size_; }

 private:
  explicit OpenedFile(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
  size_t size_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  return OpenAt(AT_FDCWD, path, 0);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::OpenAt(int directory,
                                                                     const std::string& name,
                                                                     int flags) {
  const absl::StatusOr<OpenedFile> file = OpenedFile::At(directory, name, flags);
  if (!file.ok()) return file.status();
  void* data = nullptr;
  if (file->size() > 0) {  // an empty file cannot be mapped
    data = mmap(nullptr, file->size(), PROT_READ, MAP_PRIVATE, file->descriptor(), 0);
    if (data == MAP_FAILED) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", Shown(name)));
    }
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(data, file->size()));
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
  if (absl::Status status = CheckPlainName(name); !status.ok()) return status;
  const absl::StatusOr<OpenedFile> file = OpenedFile::At(descriptor_, name, O_NOFOLLOW);
  if (!file.ok()) return file.status();
  if (file->size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(name), " has ", file->size(), " bytes, the limit is ", max_bytes));
  }
  std::string text(file->size(), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got =
        pread(file->descriptor(), text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Shown(name)));
    if (got == 0) break;  // it was cut meanwhile
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

}  // namespace sluice
