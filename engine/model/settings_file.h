// Small JSON files in the directory of a model's config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/directory.h"

namespace sluice {

// Returns the error with the file's name as prefix.
absl::Status OfFile(const std::string& file, const absl::Status& status);

// Returns an empty object if the file is not there. Errors name the file.
absl::StatusOr<nlohmann::json> ReadSettings(const Directory& directory, const std::string& file);

}  // namespace sluice
