// The commands of `sluice` and their flags. Each function adds commands to `app`. Their flags write
// into `arguments`, and parsing one of the commands sets Arguments::command. `arguments` and `app`
// must outlive the parse. A value that does not fit ends the parse with CLI::ValidationError, which
// names the flag.
#pragma once

#include <CLI/CLI.hpp>

#include "client/arguments.h"

namespace sluice::client {

void AddRequestCommands(Arguments* arguments, CLI::App* app);  // infer, generate
void AddTaskCommands(Arguments* arguments, CLI::App* app);     // embed, rerank, classify, tag
void AddBucketCommands(Arguments* arguments, CLI::App* app);   // buckets, review, explain, fit
void AddLadderCommand(Arguments* arguments, CLI::App* app);
void AddManageCommands(Arguments* arguments, CLI::App* app);  // load, unload, reload
void AddVerifyCommand(Arguments* arguments, CLI::App* app);
void AddQuantizeCommand(Arguments* arguments, CLI::App* app);

// Adds the flags of requests that name the model and its version.
void AddModelFlags(inference::ModelInferRequest* request, CLI::App* command);

// Adds flags for the named request parameters, or for all if no names are given; see
// engine/parameter_table.h.
void AddParameterFlags(std::initializer_list<std::string_view> names,
                       inference::ModelInferRequest* request, CLI::App* command);

}  // namespace sluice::client
