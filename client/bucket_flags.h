// Reads the flags of the commands about buckets: buckets, optimize, explain and fit.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/arguments.h"

namespace sluice::client {

// The values of the flags before they are checked.
struct BucketFlags {
  std::string model;
  std::string model_version;
  bool json = false;
  bool advise = false;
  bool history = false;
  std::vector<std::string> watch;  // at most one
  bool force = false;
  std::string request_id;

  std::string lengths;
  std::string column;
  bool clip = false;
  std::optional<std::string> max_batch_tokens;
  std::optional<std::string> max_batch_sequences;
  std::optional<std::string> max_buckets;
  std::optional<std::string> min_tokens;
  std::string trace;
  std::string journal;
  std::string strategy = "adaptive";
  std::optional<std::string> step_us;
  std::optional<std::string> token_us;
  std::optional<std::string> computed_token_us;
  std::optional<std::string> tile_tokens;
  std::string capture_ms = "0";
  std::optional<std::string> load;
  std::string out;
};

void AddBucketCommands(BucketFlags* flags, CLI::App* app);

// Sets the command and its arguments if `command` is one of these four, and does nothing otherwise.
// Returns InvalidArgument that names the flag.
absl::Status ReadBucketCommand(const BucketFlags& flags, const CLI::App& command,
                               Arguments* arguments);

}  // namespace sluice::client
