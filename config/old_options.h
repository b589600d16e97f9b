// Option names and values of earlier releases that no longer exist.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

struct OldOption {
  std::string path;
  std::string value{};        // the old value of an option that still exists, or empty
  std::string replacement{};  // the new name, or the new value; empty if there is none
  std::string reason{};       // why the option was removed, and the behaviour now

  std::string Remedy() const;
};

const std::vector<OldOption>& OldOptions();

// Appends "ORIGIN: PATH: REMEDY" if the option, or this value of it, was removed or renamed.
void AppendIfOld(absl::string_view origin, absl::string_view path, absl::string_view value,
                 std::vector<std::string>* old);

}  // namespace sluice
