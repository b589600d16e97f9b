// The command line of sluice-load.
#pragma once

#include <string>
#include <vector>

#include "loadtest/load/session.h"
#include "loadtest/load/test_server.h"

namespace sluice::load {

enum class Command { kRun, kReport, kNullServer };

struct Arguments {
  Command command = Command::kRun;
  SessionOptions session;
  std::string out;                   // run: the JSON report; report: the page
  bool quiet = false;                // run: no progress
  std::vector<std::string> reports;  // report: the JSON reports to show
  TestServerOptions server;
};

// How the process ends; the help text lists these.
inline constexpr int kExitValid = 0;
inline constexpr int kExitInvalid = 1;      // the run is done, but a phase is INVALID
inline constexpr int kExitUsage = 2;        // wrong arguments or files
inline constexpr int kExitUnavailable = 3;  // no server there

struct Parsed {
  Arguments arguments;
  int exit_code = -1;  // not negative: end with it, as help was asked for or an argument is wrong
};

// Prints help or the error itself.
Parsed ParseArguments(int argc, const char* const* argv);

}  // namespace sluice::load
