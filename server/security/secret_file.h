// Reads small files that other programs replace: certificates, keys, tokens.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice {

inline constexpr size_t kMaxSecretFileBytes = size_t{1} << 20;

// Returns the contents of a regular file of at most kMaxSecretFileBytes. Errors name `path` and the
// system's reason.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// Returns whether every user of this host may change the file.
bool IsWorldWritable(const std::string& path);

}  // namespace sluice
