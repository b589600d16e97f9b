// The names and values of options that earlier releases had and this one does not.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

struct OldOption {
  std::string path;
  std::string value{};        // the old value of an option that still exists, or empty
  std::string replacement{};  // the new name, or the new value; empty if there is none
  std::string reason{};       // the reason why the option was removed, and what applies now

  std::string Remedy() const;
};

const std::vector<OldOption>& OldOptions();

// Appends "ORIGIN: PATH: REMEDY" if this release does not have the name, or the value.
void AppendIfOld(absl::string_view origin, absl::string_view path, absl::string_view value,
                 std::vector<std::string>* old);

}  // namespace sluice
