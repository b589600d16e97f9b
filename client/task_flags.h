// Reads the flags of the commands that ask about texts: embed, rerank, classify and tag.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/arguments.h"
#include "client/parameter_flags.h"

namespace sluice::client {

struct TaskFlags {
  std::vector<std::string> texts;
  std::string query;                // of rerank
  std::optional<std::string> pair;  // of classify
  std::string top = "0";            // of rerank
  std::string model;
  std::string model_version;
  ParameterFlags parameters;
  bool sparse = false;  // of embed
  bool json = false;
};

// The flags of each of the commands, which share no values.
struct TasksFlags {
  TaskFlags embed, rerank, classify, tag;
};

void AddTaskCommands(TasksFlags* flags, CLI::App* app);

// Sets the command and its arguments if `command` is one of these, and does nothing otherwise.
// Returns InvalidArgument that names the flag.
absl::Status ReadTaskCommand(const TasksFlags& flags, const CLI::App& command,
                             Arguments* arguments);

}  // namespace sluice::client
