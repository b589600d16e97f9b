// Reads whole files as text. Errors have the path and the system's message.
//
//   SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

// The default limit of a file's size.
inline constexpr size_t kMaxFileBytes = size_t{1} << 30;

// Returns InvalidArgument if the file has more than `most_bytes`, or is a device or a pipe, and
// otherwise the system's error. Never waits for another process.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes = kMaxFileBytes);

// Returns the rest of an open file, or an error as above, which names `path`.
absl::StatusOr<std::string> ReadFile(int descriptor, const std::string& path, size_t most_bytes);

}  // namespace sluice
