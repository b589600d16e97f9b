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

// Thread-safe. Paths are walked component by component; the kernel never follows a link. Symbolic
// links are read and walked here, so that links which stay below the root work (as those of a
// Kubernetes volume do). Links that leave it, absolute ones among them, are InvalidArgument that
// names the link. A rename during a walk may change where it ends, but it always ends below the
// root.
class RootDirectory {
 public:
  static absl::StatusOr<std::shared_ptr<const RootDirectory>> Open(const std::string& path);

  // `flags` are those of open(2); the last component may be a link too. Errors, NotFound among
  // them, name `path`.
  absl::StatusOr<Descriptor> OpenBeneath(std::string_view path, int flags) const;

  // Returns ListNames of the directory `path`.
  absl::StatusOr<std::vector<std::string>> List(std::string_view path, size_t most) const;

 private:
  explicit RootDirectory(Descriptor root) : root_(std::move(root)) {}
  const Descriptor root_;
};

}  // namespace sluice
