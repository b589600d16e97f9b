// A whole measurement: phases at one or more loads against one server, and the report on them.
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
  std::string metrics_url;  // HOST:PORT or http://HOST:PORT/metrics of sluiced; empty: not read

  // What to run: rates in turn, or concurrencies in turn, or a search that starts at the only rate.
  // All empty with ArrivalKind::kTrace: the trace at its own speed.
  std::vector<double> rates;
  std::vector<int> concurrencies;
  bool find_peak = false;
  double peak_tolerance = 0.05;

  nanoseconds warm_up = std::chrono::seconds(2);
  nanoseconds duration = std::chrono::seconds(20);  // measured, after the warm-up
  Objective objective;
  VerdictOptions limits;
  WorkloadOptions workload;
  std::string trace_path;
  PayloadOptions payload;
  RunOptions run;

  std::string record_path;  // answers are written there
  std::string check_path;   // answers are compared with those recorded there
  std::string label;        // of the run; empty: the commit
};

// The report. `out` gets progress and a line per phase, and may be null; `terminal` as for
// Progress. InvalidArgument names a wrong option or file, Unavailable says that there is no server.
absl::StatusOr<nlohmann::json> RunSession(const SessionOptions& options, std::ostream* out,
                                          bool terminal);

// What the report says of the options; options that do not apply are left out.
nlohmann::json ConfigurationJson(const SessionOptions& options);

// True when every phase of the report is VALID.
bool AllValid(const nlohmann::json& report);

}  // namespace sluice::load
