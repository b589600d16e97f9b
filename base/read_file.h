// Whole files as texts. The errors name the path and what the system says.
//
//   SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

// The most bytes of a file that is read by default.
inline constexpr size_t kMaxFileBytes = size_t{1} << 30;

// Returns InvalidArgument if the file has more than `most_bytes`, and otherwise the system's error.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes = kMaxFileBytes);

// Returns what is left of an open file, or an error as above, which names `path`.
absl::StatusOr<std::string> ReadFile(int descriptor, const std::string& path, size_t most_bytes);

}  // namespace sluice
