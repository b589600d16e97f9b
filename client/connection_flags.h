// Flags that say how to reach the server, of all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/credentials.h"

namespace sluice::client {

void AddConnectionFlags(ConnectionArguments* flags, CLI::App* app);

// Completes what the flags leave out: the environment's SLUICE_TOKEN, and TLS where another flag is
// of no use without it. InvalidArgument names the flag.
absl::Status CompleteConnection(const std::function<const char*(const char*)>& getenv,
                                ConnectionArguments* arguments);

}  // namespace sluice::client
