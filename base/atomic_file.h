// Files that are replaced as a whole.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice {

// Replaces the file at `path`. The path always has either all of the old or all of the new
// contents. The new contents survive a loss of power once this returns OK. The temporary file is in
// the same folder, has an unpredictable name, and is created only if no such file exists. Removes
// files that an earlier process left half-written. Returns Unavailable with the system's error
// message.
absl::Status ReplaceFile(const std::string& path, std::string_view contents);

}  // namespace sluice
