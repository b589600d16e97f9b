// Why an error happened, as a fixed word for programs where its message is for people.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Attaches a reason (lower case letters and underscores) to an error; the last one stays.
absl::Status WithReason(absl::Status status, absl::string_view reason);

// The attached reason; empty when there is none.
std::string AttachedReason(const absl::Status& status);

}  // namespace sluice
