// Reads the flags of the commands that run requests: infer and generate.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/arguments.h"
#include "client/parameter_flags.h"

namespace sluice::client {

// The values of the flags before they are checked.
struct RequestFlags {
  std::optional<std::string> text;
  std::optional<std::string> pair;
  std::optional<std::string> ids;
  std::optional<std::string> vectors;
  std::optional<std::string> candidates;
  std::optional<std::string> excluded;
  std::string model;
  std::string model_version;
  std::string id;
  std::string outputs;
  ParameterFlags parameters;
  bool json = false;

  std::string file;                   // of infer
  std::string concurrency = "8";      // of infer
  std::optional<std::string> prompt;  // of generate: the text that has no flag
  bool verbose = false;               // of generate
};

void AddRequestCommands(RequestFlags* flags, CLI::App* app);

// Sets the command and its arguments if `command` is one of these two, and does nothing otherwise.
// Returns InvalidArgument that names the flag.
absl::Status ReadRequestCommand(const RequestFlags& flags, const CLI::App& command,
                                Arguments* arguments);

}  // namespace sluice::client
