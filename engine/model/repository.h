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

// [A-Za-z0-9_.-]{1,128}, no dot at the start.
bool IsRepositoryName(std::string_view name);

// NAME/config.json beside the weights is version 1 of the model NAME; NAME/VERSION/config.json its
// version VERSION, a decimal number from 1 to 2^31 - 1 without leading zeros. Nothing outside the
// root is opened, see RootDirectory. Thread-safe; each call looks at the disk.
class ModelRepository {
 public:
  static absl::StatusOr<ModelRepository> Open(const std::string& path);

  struct Found {
    std::string name;
    std::vector<int64_t> versions;  // ascending, not empty when `status` is ok
    bool numbered = false;          // versions are directories
    absl::Status status;            // why it is no model
  };

  // By name. Entries that are no directories or whose names are no models' are left out.
  absl::StatusOr<std::vector<Found>> List() const;
  // InvalidArgument for what is no name, NotFound, or why it is no model.
  absl::StatusOr<Found> Find(std::string_view name) const;

  // The directory of a model that was found; `version` is one of it.
  absl::StatusOr<Directory> Folder(const Found& found, int64_t version) const;

 private:
  explicit ModelRepository(std::shared_ptr<const RootDirectory> root) : root_(std::move(root)) {}
  Found Look(const std::string& name) const;

  std::shared_ptr<const RootDirectory> root_;
};

}  // namespace sluice
