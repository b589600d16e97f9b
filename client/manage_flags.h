// Reads the flags of the commands that manage a daemon: load, unload and reload.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "client/arguments.h"

namespace sluice::client {

struct ManageFlags {
  std::string model;
  std::string version;
  bool json = false;
};

void AddManageCommands(ManageFlags* flags, CLI::App* app);

// Sets the command and its arguments if `command` is one of these, and does nothing otherwise.
absl::Status ReadManageCommand(const ManageFlags& flags, const CLI::App& command,
                               Arguments* arguments);

}  // namespace sluice::client
