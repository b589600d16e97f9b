// Runs a whole measurement (phases at one or more loads against one server) and reports on it.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

  // The loads to run: the rates in turn and then the concurrencies in turn, or a search that starts
  // at the first rate. If all are empty and the kind is ArrivalKind::kTrace, the trace runs at its
  // own speed.
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

// A session that has ended.
struct EndedSession {
  absl::Status status;
  // With an error, it has the phases that ended before, and is null if there are none.
  nlohmann::json report;
};

// Runs the session. `out`, which may be null, receives progress and a line per phase; `terminal` is
// as for Progress. Returns InvalidArgument that names a wrong option or file, and Unavailable if
// there is no server. Options and files are checked before the server is called.
EndedSession RunSession(const SessionOptions& options, std::ostream* out, bool terminal);

// Returns the options as the report states them, without those that do not apply.
nlohmann::json ConfigurationJson(const SessionOptions& options);

// Returns true if every phase of the report is VALID.
bool AllValid(const nlohmann::json& report);

}  // namespace sluice::load
