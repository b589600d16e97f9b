// Makes one HTML page from JSON reports. The page is self-contained; a script draws it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace sluice::load {

// Reads the reports and returns their page. Returns NotFound, or InvalidArgument if a file is not a
// report of sluice-load; the error names the file.
absl::StatusOr<std::string> MakePage(const std::vector<std::string>& paths);

// Returns the page of `reports`, a list of reports. No text of a report can end the script that
// embeds it.
std::string RenderPage(const nlohmann::json& reports);

}  // namespace sluice::load
