// Reads the flags of `sluice verify`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "client/arguments.h"

namespace sluice::client {

struct VerifyFlags {
  std::string model_directory;
  std::string golden;
  std::string tolerance = "1e-5";
  std::string profile;
  std::string against;
  std::string text;
  std::string quantization;
  bool quantize_head = false;
  int64_t quantization_group = 0;
  std::string kv_dtype;
  std::string reference;
};

// Requires that `flags` outlives `app`.
void AddVerifyCommand(VerifyFlags* flags, CLI::App* app);

// Does nothing for another command.
absl::Status ReadVerifyCommand(const VerifyFlags& flags, const CLI::App& command,
                               Arguments* arguments);

}  // namespace sluice::client
