// The flags of the commands that run requests: infer and generate.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/arguments.h"

namespace sluice::client {

// What the flags say, before any of it is judged.
struct RequestFlags {
  std::optional<std::string> text;
  std::optional<std::string> ids;
  std::optional<std::string> vectors;
  std::optional<std::string> candidates;
  std::optional<std::string> excluded;
  std::string model;
  std::string model_version;
  std::string id;
  std::string outputs;
  std::vector<std::vector<std::string>> parameters;  // beside Parameters(); empty: left out
  bool json = false;

  std::string file;                   // infer
  std::string concurrency = "8";      // infer
  std::optional<std::string> prompt;  // generate: the text without a flag
  bool verbose = false;               // generate
};

void AddRequestCommands(RequestFlags* flags, CLI::App* app);

// Sets command and arguments when `command` is one of these two, and nothing otherwise.
// InvalidArgument names the flag.
absl::Status ReadRequestCommand(const RequestFlags& flags, const CLI::App& command,
                                Arguments* arguments);

}  // namespace sluice::client
