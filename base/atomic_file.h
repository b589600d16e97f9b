// Files that are replaced as a whole.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice {

// Returns FailedPrecondition if the path is a device, a pipe or a folder. ReplaceFile
// replaces none of these.
absl::Status CheckReplaceable(const std::string& path);

// Replaces the file at `path`. The path always has either all of the old or all of the new
// contents. The new contents survive a loss of power once this returns OK. The temporary file is in
// the same folder, has an unpredictable name, and is created only if no such file exists. Removes
// files that an earlier process left half-written. Returns the error of CheckReplaceable,
// and changes nothing. Otherwise returns Unavailable with the system's error message.
absl::Status ReplaceFile(const std::string& path, std::string_view contents);

}  // namespace sluice
