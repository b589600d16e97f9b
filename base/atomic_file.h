// Files that are replaced as a whole.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice {

// Replaces the file at `path`. Whatever happens, the path then has all of the old or all of the new
// contents, also after a loss of power once it returns OK. The temporary file beside it has a name
// that nobody can know before, and is never opened if it is there already. Files that an earlier
// process left half-written are removed. Returns Unavailable, with the system's reason.
absl::Status ReplaceFile(const std::string& path, std::string_view contents);

}  // namespace sluice
