// The benchmarks of sluice-bench. Each starts its servers itself, interleaves the contenders and
// reports medians over rounds. Only ratios within one run are meaningful.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice::loadtest {

struct EdgeOptions {
  std::string sluiced;  // path of the daemon
  std::string other;    // path of another daemon to compare with; empty means none
  std::string self;     // path of this binary, for the bare server
  std::string model;    // a tiny model directory, so that compute costs little
  int tokens = 8;       // the tokens of each request
  int outstanding = 16;
  int rounds = 5;
  absl::Duration round = absl::Seconds(3);
};

// Measures the server's CPU time per small ModelInfer request for three servers: sluiced when it
// answers, sluiced when it refuses because the queue is full, and a bare raw-callback gRPC server
// with answers of the same size.
absl::StatusOr<nlohmann::json> RunEdge(const EdgeOptions& options);

struct GenerateOptions {
  std::string sluiced;
  std::string model;
  int outstanding = 32;                           // the comparison's closed loop
  std::vector<int> concurrency = {1, 4, 16, 64};  // the series
  int rounds = 5;
  absl::Duration phase = absl::Seconds(8);
  absl::Duration warm_up = absl::Seconds(2);  // of each phase, before `phase`
  uint64_t seed = 1;
  std::string table;  // file for the figures as Markdown; empty means none
};

// Measures streamed answers of mixed lengths. Compares continuous batching with static batches, in
// a closed and in an open loop, by tokens per second and time to first token. Then measures
// continuous batching at each concurrency.
absl::StatusOr<nlohmann::json> RunGenerate(const GenerateOptions& options);

struct BucketsOptions {
  std::string sluiced;
  std::string model;
  std::string trace;  // CSV, see trace/trace_file.h
  // Inputs of the trace are reduced to `cap`, then shrunk by the model's positions / `cap`.
  int32_t cap = 8192;
  int outstanding = 256;
  int rounds = 3;
  absl::Duration phase = absl::Seconds(4);
  absl::Duration warm_up = absl::Milliseconds(500);  // of each phase, before `phase`
  uint64_t seed = 1;
  bool strategies = false;  // compare the strategies of ladders instead of the policies
  std::string table;        // file for the figures as Markdown; empty means none
};

// Measures padded and packed policies, and ladders, on requests with the lengths of a trace:
// throughput at the peak, latency at shares of the peaks, efficiency and captures. Compares the
// answers with the answers to the same requests sent one by one, and with the reference.
absl::StatusOr<nlohmann::json> RunBuckets(const BucketsOptions& options);

}  // namespace sluice::loadtest
