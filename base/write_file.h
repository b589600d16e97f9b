// Writes whole files that are not replaced atomically, such as reports. See base/atomic_file.h for
// files that another process reads.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice {

// Creates the file, or replaces its contents. The path may name a device or a pipe. Returns the
// system's error with the path in the message, also if the error is reported only when the file is
// closed. A part of the text may then be in the file.
absl::Status WriteFile(const std::string& path, std::string_view text);

// Returns an error if WriteFile would fail for this path: a folder is missing or read-only, or the
// path is a folder. Changes nothing. Later changes and a full disk are not foreseen.
absl::Status CheckWritable(const std::string& path);

}  // namespace sluice
