// The commands of `sluice` and their flags. Each function adds commands to `app`: their flags write
// into `arguments`, and parsing one of the commands sets Arguments::command. Both outlive the
// parse.
// A value that does not fit ends the parse with CLI::ValidationError, which names the flag.
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

// Adds the flags of the request parameters of these names, or of all if there are none; see
// engine/parameter_table.h.
void AddParameterFlags(std::initializer_list<std::string_view> names,
                       inference::ModelInferRequest* request, CLI::App* command);

}  // namespace sluice::client
