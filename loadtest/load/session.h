// Runs a whole measurement (phases at one or more loads against one server) and reports on it.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/credentials.h"
#include "loadtest/load/arrivals.h"
#include "loadtest/load/payload.h"
#include "loadtest/load/run.h"
#include "loadtest/load/stats.h"
#include "loadtest/load/verdict.h"
#include "nlohmann/json.hpp"

namespace sluice::load {

struct SessionOptions {
  std::string address = "127.0.0.1:8001";
  client::ConnectionArguments connection;
  int channels = 4;
  std::string metrics_url;  // HOST:PORT or http://HOST:PORT/metrics of sluiced; empty if not read

  // The loads to run: the rates in turn, or the concurrencies in turn, or a search that starts at
  // the only rate. If all are empty and the kind is ArrivalKind::kTrace, the trace runs at its own
  // speed.
  std::vector<double> rates;
  std::vector<int> concurrencies;
  bool find_peak = false;
  double peak_tolerance = 0.05;

  nanoseconds warm_up = std::chrono::seconds(2);
  nanoseconds duration = std::chrono::seconds(20);  // the measured time after the warm-up
  Objective objective;
  VerdictOptions limits;
  WorkloadOptions workload;
  std::string trace_path;
  PayloadOptions payload;
  RunOptions run;

  std::string record_path;  // the file to write the answers to
  std::string check_path;   // the file of answers to compare with
  std::string label;        // names the run; empty means the commit
};

// Runs the session and returns its report. `out`, which may be null, receives progress and a line
// per phase; `terminal` is as for Progress. Returns InvalidArgument that names a wrong option or
// file, and Unavailable if there is no server.
absl::StatusOr<nlohmann::json> RunSession(const SessionOptions& options, std::ostream* out,
                                          bool terminal);

// Returns the options as the report states them, without those that do not apply.
nlohmann::json ConfigurationJson(const SessionOptions& options);

// Returns true if every phase of the report is VALID.
bool AllValid(const nlohmann::json& report);

}  // namespace sluice::load
