// The flags of all commands that connect to a server.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/credentials.h"

namespace sluice::client {

void AddConnectionFlags(ConnectionArguments* flags, CLI::App* app);

// Fills in defaults: the token from SLUICE_TOKEN in the environment, and TLS if another flag needs
// it. Returns InvalidArgument that names the flag.
absl::Status CompleteConnection(const std::function<const char*(const char*)>& getenv,
                                ConnectionArguments* arguments);

}  // namespace sluice::client
