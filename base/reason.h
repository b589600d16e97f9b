// The reason of an error as a fixed word, for programs; its message is for people.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Returns the error with a reason (lower case letters and underscores) attached; it replaces an
// earlier one.
absl::Status WithReason(absl::Status status, absl::string_view reason);

// Returns the attached reason, or an empty string if there is none.
std::string AttachedReason(const absl::Status& status);

}  // namespace sluice
