// The HTML page of one or more JSON reports: self-contained, drawn by a script of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace sluice::load {

// Reads the reports; NotFound or InvalidArgument names the file that is none of sluice-load.
absl::StatusOr<std::string> MakePage(const std::vector<std::string>& paths);

// The page of `reports`, a list of reports. Nothing that a report says can end the script that it
// is embedded in.
std::string RenderPage(const nlohmann::json& reports);

}  // namespace sluice::load
