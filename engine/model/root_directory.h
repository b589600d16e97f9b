// Opens what lies below one directory, and nothing else.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace sluice {

// The names in a directory, without "." and "..", in order. InvalidArgument for more than `most`.
absl::StatusOr<std::vector<std::string>> ListNames(const Descriptor& directory, size_t most);

// Thread-safe. Paths are walked component by component without ever following what the kernel would:
// symbolic links are read and walked themselves, so that links which stay below the root work (as
// those of a Kubernetes volume do) and those that leave it, absolute ones among them, are
// InvalidArgument that names the link. What is renamed meanwhile changes where a walk ends, never that
// it ends below the root.
class RootDirectory {
 public:
  static absl::StatusOr<std::shared_ptr<const RootDirectory>> Open(const std::string& path);

  // `flags` of open(2); the last component may be a link too. Errors name `path`; NotFound among them.
  absl::StatusOr<Descriptor> OpenBeneath(std::string_view path, int flags) const;

  // ListNames of the directory `path`.
  absl::StatusOr<std::vector<std::string>> List(std::string_view path, size_t most) const;

 private:
  explicit RootDirectory(Descriptor root) : root_(std::move(root)) {}
  const Descriptor root_;
};

}  // namespace sluice
