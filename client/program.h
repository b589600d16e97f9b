// The process around the commands: parses the arguments, and connects a command with the terminal.
#pragma once

#include <functional>

#include "client/arguments.h"
#include "client/commands.h"

namespace sluice::client {

// Parses the arguments and calls `run` with them. Returns the process's exit code.
int RunProgram(int argc, char** argv,
               const std::function<int(const Arguments&, const Console&)>& run);

}  // namespace sluice::client
