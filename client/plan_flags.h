// Reads the flags of `sluice plan` and `sluice einsum`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "client/arguments.h"

namespace sluice::client {

struct PlanFlags {
  PlanArguments plan;
  std::string context, sequences, tokens, threads, variant;
  EinsumArguments einsum;
};

// Requires that `flags` outlives `app`.
void AddPlanCommands(PlanFlags* flags, CLI::App* app);

// Does nothing for any other command.
absl::Status ReadPlanCommand(const PlanFlags& flags, const CLI::App& command, Arguments* arguments);

}  // namespace sluice::client
