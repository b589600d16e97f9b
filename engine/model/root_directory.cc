#include "engine/model/root_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr int kMaxLinks = 40;  // as in the kernel
constexpr size_t kMaxFolders = 64;

std::string ShownPath(std::string_view path) {
  return absl::CHexEscape(absl::string_view(path.data(), std::min<size_t>(path.size(), 255)));
}

absl::Status CheckRelative(std::string_view path) {
  if (path.find('\0') == std::string_view::npos && !path.starts_with('/')) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ShownPath(path), "\" is not a path below the root directory"));
}

// Returns the path of an entry of `folder`.
std::string PathIn(const Folder& folder, std::string_view entry) {
  const absl::string_view name(entry.data(), entry.size());
  if (folder.path.empty() || name.empty()) return absl::StrCat(folder.path, name);
  return absl::StrCat(folder.path, "/", name);
}

// One walk. Its place is the top of a stack of directories, so that ".." leads back to the
// directory of the previous component, even if names have changed since.
class Walk {
 public:
  // `path` is for messages; the walk follows `ahead`, which starts at `from`.
  Walk(int root, const Folder& from, std::string_view path, std::string_view ahead, int flags)
      : root_(root), path_(path), flags_(flags), stack_(from.trail) {
    Prepend(ahead);
  }

  // Walks to a directory, and returns the open directories that lead to it from the root.
  absl::StatusOr<std::vector<std::shared_ptr<const Descriptor>>> RunToFolder() {
    ahead_.emplace_back(".");  // the last name is a directory to pass through, too
    SLUICE_ASSIGN_OR_RETURN(Descriptor opened, Run());
    if (!stack_.empty()) stack_.back() = std::make_shared<const Descriptor>(std::move(opened));
    return std::move(stack_);
  }

  absl::StatusOr<Descriptor> Run() {
    while (!ahead_.empty()) {
      const std::string name = std::move(ahead_.front());
      ahead_.pop_front();
      if (name.empty() || name == ".") continue;
      if (name == "..") {
        if (stack_.empty()) return Leaves("..");
        stack_.pop_back();
        continue;
      }
      Descriptor next(openat(here(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      struct stat info;
      if (next.get() < 0 || fstat(next.get(), &info) != 0) return Failed();
      if (S_ISLNK(info.st_mode)) {
        SLUICE_RETURN_IF_ERROR(Follow(next, name));
      } else if (ahead_.empty()) {
        return Opened(name);
      } else if (stack_.size() == kMaxFolders) {
        return absl::InvalidArgumentError(
            absl::StrCat(ShownPath(path_), " is nested deeper than ", kMaxFolders, " folders"));
      } else {
        stack_.push_back(std::make_shared<const Descriptor>(std::move(next)));
      }
    }
    return Opened(".");
  }

 private:
  int here() const { return stack_.empty() ? root_ : stack_.back()->get(); }

  void Prepend(std::string_view path) {
    const std::vector<std::string> parts =
        absl::StrSplit(absl::string_view(path.data(), path.size()), '/');
    ahead_.insert(ahead_.begin(), parts.begin(), parts.end());
  }

  absl::Status Follow(const Descriptor& link, const std::string& name) {
    char target[PATH_MAX];
    const ssize_t size = readlinkat(link.get(), "", target, sizeof(target));
    if (size < 0) return Failed();
    const std::string_view text(target, size);
    if (text.starts_with('/')) return Leaves(name);
    if (++links_ > kMaxLinks) {
      return absl::InvalidArgumentError(
          absl::StrCat(ShownPath(path_), " has more than ", kMaxLinks, " symbolic links"));
    }
    last_link_ = name;
    Prepend(text);
    return absl::OkStatus();
  }

  // Opens a name that was not a link; this fails if it has become one since. Non-blocking, so that
  // a FIFO cannot hang the walk.
  absl::StatusOr<Descriptor> Opened(const std::string& name) const {
    Descriptor opened(openat(here(), name.c_str(), flags_ | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (opened.get() < 0) return Failed();
    return opened;
  }

  absl::Status Failed() const {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", ShownPath(path_)));
  }

  absl::Status Leaves(const std::string& name) const {
    const std::string& link = name == ".." ? last_link_ : name;
    return absl::InvalidArgumentError(
        link.empty() ? absl::StrCat(ShownPath(path_), " leads out of the root directory")
                     : absl::StrCat(ShownPath(path_),
                                    " leads out of the root directory by the "
                                    "symbolic link ",
                                    ShownPath(link), "; put the file in the place of the link"));
  }

  const int root_;
  const std::string_view path_;
  const int flags_;
  std::vector<std::shared_ptr<const Descriptor>> stack_;
  std::deque<std::string> ahead_;
  std::string last_link_;
  int links_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RootDirectory>> RootDirectory::Open(const std::string& path) {
  Descriptor root(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.get() < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open directory ", ShownPath(path)));
  }
  return std::shared_ptr<const RootDirectory>(new RootDirectory(std::move(root)));
}

absl::StatusOr<Descriptor> RootDirectory::OpenBeneath(std::string_view path, int flags,
                                                      const Folder& from) const {
  SLUICE_RETURN_IF_ERROR(CheckRelative(path));
  return Walk(root_.get(), from, PathIn(from, path), path, flags).Run();
}

absl::StatusOr<Folder> RootDirectory::OpenFolder(const std::string& path,
                                                 const Folder& from) const {
  SLUICE_RETURN_IF_ERROR(CheckRelative(path));
  Folder folder{.path = PathIn(from, path), .trail = {}};
  SLUICE_ASSIGN_OR_RETURN(
      folder.trail,
      Walk(root_.get(), from, folder.path, path, O_RDONLY | O_DIRECTORY).RunToFolder());
  return folder;
}

const Descriptor& RootDirectory::DescriptorOf(const Folder& folder) const {
  return folder.trail.empty() ? root_ : *folder.trail.back();
}

absl::StatusOr<std::vector<std::string>> RootDirectory::List(std::string_view path,
                                                             size_t most) const {
  SLUICE_ASSIGN_OR_RETURN(const Descriptor directory, OpenBeneath(path, O_RDONLY | O_DIRECTORY));
  return ListNames(directory, path, most);
}

absl::StatusOr<std::vector<std::string>> ListNames(const Descriptor& directory,
                                                   std::string_view path, size_t most) {
  const auto failed = [path](int error) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot list directory ", ShownPath(path)));
  };
  // closedir closes its descriptor, and the position in the directory belongs to the open file, so
  // the listing opens its own.
  Descriptor own(openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const stream = own.get() < 0 ? nullptr : fdopendir(own.get());
  if (stream == nullptr) return failed(errno);
  own.Release();
  const absl::Cleanup close_stream = [stream] { closedir(stream); };
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == most) {
      return absl::InvalidArgumentError(
          absl::StrCat("the directory has more than ", most, " entries"));
    }
    names.emplace_back(name);
    errno = 0;  // readdir reports errors only through it
  }
  if (errno != 0) return failed(errno);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace sluice
