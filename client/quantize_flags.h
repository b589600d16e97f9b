// Reads the flags of `sluice quantize`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "client/arguments.h"

namespace sluice::client {

struct QuantizeFlags {
  QuantizeArguments arguments;
  bool plain = false;
  std::string keep_above = "0";
  int64_t keep_channels = 0;
};

// Requires that `flags` outlives `app`.
void AddQuantizeCommand(QuantizeFlags* flags, CLI::App* app);

// Does nothing for another command.
absl::Status ReadQuantizeCommand(const QuantizeFlags& flags, const CLI::App& command,
                                 Arguments* arguments);

}  // namespace sluice::client
