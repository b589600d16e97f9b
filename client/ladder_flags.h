// Reads the flags of the command ladder.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "client/arguments.h"

namespace sluice::client {

// The values of the flags before they are checked.
struct LadderFlags {
  std::string action;
  LadderArguments arguments;
  LadderChoice options;  // by name of the option; empty values were not given
};

void AddLadderCommand(LadderFlags* flags, CLI::App* app);

// Sets the command and its arguments if `command` is ladder, and does nothing otherwise. Returns
// InvalidArgument that names the flag.
absl::Status ReadLadderCommand(const LadderFlags& flags, const CLI::App& command,
                               Arguments* arguments);

}  // namespace sluice::client
