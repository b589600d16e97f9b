// The command line of `sluice`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/credentials.h"
#include "engine/options.h"
#include "proto/inference.pb.h"

namespace sluice::client {

struct RequestArguments {
  inference::ModelInferRequest request;  // no model name: the only one that is served
  bool text_from_input = false;          // its prompt, which it lacks, is on standard input
};

// Without `file` the request has its prompt; with it, it holds what the lines leave out.
struct InferArguments : RequestArguments {
  std::string file;  // "-": standard input
  int concurrency = 8;
  bool json = false;
};

struct GenerateArguments : RequestArguments {
  bool json = false;
  bool verbose = false;  // the summary is wanted even if the output is no terminal
};

struct StatsArguments {
  std::string model;            // empty: all
  std::string metrics_address;  // empty: do not ask
};

struct HealthArguments {
  std::string service;
};

struct BucketsArguments {
  std::string model;  // empty: all
  std::string model_version;
  bool advise = false;
  bool json = false;
  int64_t watch_us = 0;  // 0: print once
};

struct OptimizeArguments {
  std::string model;  // empty: the only one that is served
  std::string model_version;
  bool force = false;
  bool json = false;
};

struct ExplainArguments {
  std::string request_id;
  bool json = false;
};

struct FitArguments {
  std::string lengths;  // file; "-": standard input
  std::string column;   // number or name; empty: a line is a length
  bool clip = false;
  LadderOptions ladder;
  BatchOptions batch{.max_batch_tokens = 4096};
  double step_us = 0;
  double token_us = 0;
  double load = 0;
  std::string out;  // empty: standard output alone
};

struct VerifyArguments {
  std::string model_directory;
  std::string golden;
  double tolerance = 0;
  std::string profile;
};

struct ManageArguments {
  std::string model;
  int64_t model_version = 0;  // 0: not given
  bool json = false;
};

struct Arguments {
  enum class Command {
    kPrint,
    kInfer,
    kGenerate,
    kModels,
    kStats,
    kHealth,
    kBuckets,
    kOptimize,
    kExplain,
    kLoad,
    kUnload,
    kReload,
    kFit,
    kVerify
  };
  Command command = Command::kPrint;
  std::string text;  // kPrint: help or version
  std::string server;
  int64_t deadline_us = 0;  // of each call; 0: none
  ConnectionArguments connection;
  InferArguments infer;
  GenerateArguments generate;
  StatsArguments stats;
  HealthArguments health;
  BucketsArguments buckets;
  OptimizeArguments optimize;
  ExplainArguments explain;
  FitArguments fit;
  VerifyArguments verify;
  ManageArguments manage;
};

// InvalidArgument names the flag. The environment gives the defaults of --server: SLUICE_SERVER,
// and SLUICE_ADMIN for the commands that talk to the admin API; and that of --token: SLUICE_TOKEN.
absl::StatusOr<Arguments> ParseArguments(int argc, const char* const* argv,
                                         const std::function<const char*(const char*)>& getenv);

}  // namespace sluice::client
