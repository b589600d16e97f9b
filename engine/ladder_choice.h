// A choice of ladder for one model. It overrides the configuration.
//
//   const LadderChoice choice = {{"strategy", "geometric"}, {"ratio", "2"}};
//   SLUICE_ASSIGN_OR_RETURN(const LadderOptions options, Apply(choice, engine_options.ladder));
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/options.h"

namespace sluice {

// Values by option of engine.ladder, written as in the configuration.
using LadderChoice = std::map<std::string, std::string>;

// Returns whether a choice may set this option of engine.ladder.
bool IsChoosable(absl::string_view option);

// Returns `options` with the choice applied. Returns InvalidArgument if an option cannot be chosen
// or its value is out of range; the message names the option.
absl::StatusOr<LadderOptions> Apply(const LadderChoice& choice, LadderOptions options);

// Returns the values of all options that a choice may set.
LadderChoice ChoiceOf(const LadderOptions& options);

}  // namespace sluice
