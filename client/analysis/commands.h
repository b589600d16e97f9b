// The commands of `sluice` that load a model or analyse a cascade of einsums. They are a program of
// their own, `sluice-analysis`, so that a client can be built without them. Each function returns
// the process's exit code.
#pragma once

#include "client/commands.h"

namespace sluice::client {

// Runs one of the commands below.
int Analyse(const Arguments& arguments, const Console& console);

int RunVerify(const Arguments& arguments, const Console& console);
int RunQuantize(const Arguments& arguments, const Console& console);
int RunPlan(const Arguments& arguments, const Console& console);
int RunEinsum(const Arguments& arguments, const Console& console);

}  // namespace sluice::client
