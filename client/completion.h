// Writes shell scripts that complete the words of `sluice`. The function is pure.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::client {

// Returns the script for bash, zsh or fish, with the commands and flags of `app`.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace sluice::client
