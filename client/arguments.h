// The command line of `sluice`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Exactly one of `request` having an input and `file` being set.
struct InferArguments {
  // From --text or --ids; without them it holds what the lines of the file leave out. No model
  // name: the only one that is served.
  inference::ModelInferRequest request;
  std::string file;  // "-": standard input
  int concurrency = 8;
  bool json = false;
};

struct StatsArguments {
  std::string model;            // empty: all
  std::string metrics_address;  // empty: do not ask
};

struct HealthArguments {
  std::string service;
};

struct Arguments {
  enum class Command { kPrint, kInfer, kModels, kStats, kHealth };
  Command command = Command::kPrint;
  std::string text;  // kPrint: help or version
  std::string server;
  int64_t deadline_us = 0;  // of each call; 0: none
  InferArguments infer;
  StatsArguments stats;
  HealthArguments health;
};

// InvalidArgument names the flag. The environment gives the default of --server (SLUICE_SERVER).
absl::StatusOr<Arguments> ParseArguments(int argc, const char* const* argv,
                                         const std::function<const char*(const char*)>& getenv);

}  // namespace sluice::client
