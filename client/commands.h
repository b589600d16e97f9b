// What `sluice` does, apart from the process around it. Each returns the process's exit code.
#pragma once

#include <functional>
#include <iosfwd>

#include "absl/time/time.h"
#include "client/arguments.h"
#include "client/connection.h"

namespace sluice::client {

struct Console {
  std::istream* in;
  std::ostream* out;
  std::ostream* error;
  bool progress;          // `error` is a terminal
  bool terminal = false;  // `out` is one
  // Lets time pass between redraws of --watch; false ends it. Empty: it ends after the first.
  std::function<bool(absl::Duration)> pause{};
};

int Run(const Arguments& arguments, const Console& console);

int RunInfer(const Arguments& arguments, const Connection& connection, const Console& console);
int RunFile(const Arguments& arguments, const Connection& connection, const Console& console);
int RunModels(const Arguments& arguments, const Connection& connection, const Console& console);
int RunStats(const Arguments& arguments, const Connection& connection, const Console& console);
int RunHealth(const Arguments& arguments, const Connection& connection, const Console& console);
int RunBuckets(const Arguments& arguments, const Connection& connection, const Console& console);
int RunOptimize(const Arguments& arguments, const Connection& connection, const Console& console);
int RunExplain(const Arguments& arguments, const Connection& connection, const Console& console);
int RunFit(const Arguments& arguments, const Console& console);

// Prints the failure; its exit code.
int Fail(const absl::Status& status, const Arguments& arguments, const Console& console);

}  // namespace sluice::client
