// Opens files and directories below one directory, and nothing else.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace sluice {

// Returns the names in a directory in order, without "." and "..". Returns InvalidArgument if there
// are more than `most`, and otherwise the system's error with `path`.
absl::StatusOr<std::vector<std::string>> ListNames(const Descriptor& directory,
                                                   std::string_view path, size_t most);

// A directory below a root. It stays the same directory if names and links that led to it change.
struct Folder {
  std::string path;  // below the root, for messages
  // The open directories that lead to it from the root, which is not one of them. The last one is
  // the directory itself, open for reading.
  std::vector<std::shared_ptr<const Descriptor>> trail;
};

// Thread-safe. Paths are walked component by component; the kernel never follows a link. This class
// reads and walks symbolic links, so links that stay below the root work, as in a Kubernetes
// volume. For a link that leaves the root, including an absolute link, returns InvalidArgument with
// the name of the link. A rename during a walk may change where it ends, but it always ends below
// the root.
class RootDirectory {
 public:
  static absl::StatusOr<std::shared_ptr<const RootDirectory>> Open(const std::string& path);

  // Opens `path`, which starts at `from`, by default the root. `flags` are the flags of open(2);
  // the last component may be a link too. Errors, including NotFound, name the path below the root.
  absl::StatusOr<Descriptor> OpenBeneath(std::string_view path, int flags,
                                         const Folder& from = {}) const;
  // Opens the directory `path`, which starts at `from`.
  absl::StatusOr<Folder> OpenFolder(const std::string& path, const Folder& from = {}) const;

  // Returns the descriptor of a folder that OpenFolder returned. It refers to the directory, but
  // the root's cannot be read.
  const Descriptor& DescriptorOf(const Folder& folder) const;

  // Returns ListNames of the directory `path`.
  absl::StatusOr<std::vector<std::string>> List(std::string_view path, size_t most) const;

 private:
  explicit RootDirectory(Descriptor root) : root_(std::move(root)) {}
  const Descriptor root_;
};

}  // namespace sluice
