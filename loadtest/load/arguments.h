// The command line of sluice-load.
#pragma once

#include <string>
#include <vector>

#include "loadtest/load/session.h"
#include "loadtest/load/test_server.h"

namespace sluice::load {

enum class Command { kRun, kReport, kTrace, kNullServer };

struct Arguments {
  Command command = Command::kRun;
  SessionOptions session;
  std::string out;                   // of `run`: JSON report; of `report`: page; of `trace`: trace
  bool quiet = false;                // of `run`: show no progress
  std::vector<std::string> reports;  // of `report`: the JSON reports to show
  std::string trace;                 // of `trace`: the file to convert
  TestServerOptions server;
};

// The exit codes of the process; the help text lists them.
inline constexpr int kExitValid = 0;
inline constexpr int kExitInvalid = 1;      // the run is complete, but a phase is INVALID
inline constexpr int kExitUsage = 2;        // wrong arguments or files
inline constexpr int kExitUnavailable = 3;  // there is no server

struct Parsed {
  Arguments arguments;
  int exit_code = -1;  // if not negative, exit with it: help was printed or an argument is wrong
};

// Parses the arguments. Prints the help or the error itself.
Parsed ParseArguments(int argc, const char* const* argv);

}  // namespace sluice::load
