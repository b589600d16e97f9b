// A closed-loop generator: a fixed number of calls is always outstanding. It measures capacity and
// cost per call; latency under a given load needs an open loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::loadtest {

struct ClosedLoopOptions {
  std::string address;  // HOST:PORT
  std::string method;   // "/inference.GRPCInferenceService/ModelInfer"
  int outstanding = 16;
  int channels = 1;  // calls are spread over as many connections
  absl::Duration duration = absl::Seconds(2);
};

struct ClosedLoopResult {
  int64_t calls = 0;  // that succeeded
  int64_t errors = 0;
  std::string first_error;
  absl::Duration elapsed;         // until the last answer
  std::vector<double> latency_s;  // of the calls that succeeded, unsorted
};

// Waits until the server at `address` accepts connections.
absl::Status WaitForServer(const std::string& address, absl::Duration timeout);

// `request(i)` gives the serialised message of call i; `on_response` sees every serialised answer.
// Both are called from client threads, one call at a time.
absl::StatusOr<ClosedLoopResult> RunClosedLoop(
    const ClosedLoopOptions& options, absl::FunctionRef<std::string(int64_t)> request,
    absl::FunctionRef<void(const std::string&)> on_response);

}  // namespace sluice::loadtest
