// A directory of models that are loaded by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/model/root_directory.h"

namespace sluice {

inline constexpr size_t kMaxRepositoryModels = 1024;
inline constexpr size_t kMaxRepositoryVersions = 1024;  // of one model

// Returns whether `name` is [A-Za-z0-9_.-]{1,128} without a dot at the start.
bool IsRepositoryName(std::string_view name);

// NAME/config.json, in the same directory as the weights, is version 1 of the model NAME.
// NAME/VERSION/config.json is its version VERSION, a decimal number from 1 to 2^31 - 1 without
// leading zeros. Nothing outside the root is opened, see RootDirectory. Thread-safe; each call
// reads the disk.
class ModelRepository {
 public:
  static absl::StatusOr<ModelRepository> Open(const std::string& path);

  struct Found {
    std::string name;
    std::vector<int64_t> versions;  // ascending; not empty if `status` is ok
    bool numbered = false;          // whether versions are directories
    absl::Status status;            // the error if it is not a model
  };

  // Returns the models by name. Entries that are not directories, or whose names are not model
  // names, are left out.
  absl::StatusOr<std::vector<Found>> List() const;
  // Returns InvalidArgument if `name` is not a valid model name, NotFound, or the reason why the
  // entry is not a model.
  absl::StatusOr<Found> Find(std::string_view name) const;

  // Returns the directory of a model that was found; `version` is one of its versions.
  absl::StatusOr<Directory> Folder(const Found& found, int64_t version) const;

 private:
  explicit ModelRepository(std::shared_ptr<const RootDirectory> root) : root_(std::move(root)) {}
  Found Inspect(const std::string& name) const;

  std::shared_ptr<const RootDirectory> root_;
};

}  // namespace sluice
