// Names the place of an error, such as an option or a file, before its message.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Returns an error with the code of `error` and the message "PLACE: MESSAGE".
inline absl::Status ErrorAt(absl::string_view place, const absl::Status& error) {
  return absl::Status(error.code(), absl::StrCat(place, ": ", error.message()));
}

}  // namespace sluice
