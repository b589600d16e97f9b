// The process around the commands: parses the arguments, and connects a command with the terminal.
#pragma once

#include "client/commands.h"

namespace sluice::client {

// Parses the arguments and runs their command. Returns the process's exit code.
int RunProgram(int argc, char** argv, const RunAnalysis& analysis);

}  // namespace sluice::client
