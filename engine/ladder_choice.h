// A choice of ladder for one model, which takes the place of what the configuration says of all.
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

// Returns whether a choice may name this option of engine.ladder.
bool IsChoosable(absl::string_view option);

// Returns `options` with the choice in place. Returns InvalidArgument that names the option which
// cannot be chosen or whose value is out of its range.
absl::StatusOr<LadderOptions> Apply(const LadderChoice& choice, LadderOptions options);

// Returns the values of all options that a choice may name.
LadderChoice ChoiceOf(const LadderOptions& options);

}  // namespace sluice
