// What `sluice` does, apart from the process around it. Each returns the process's exit code.
#pragma once

#include <iosfwd>

#include "client/arguments.h"
#include "client/connection.h"

namespace sluice::client {

struct Console {
  std::istream* in;
  std::ostream* out;
  std::ostream* error;
  bool progress;  // `error` is a terminal
};

int Run(const Arguments& arguments, const Console& console);

int RunInfer(const Arguments& arguments, const Connection& connection, const Console& console);
int RunFile(const Arguments& arguments, const Connection& connection, const Console& console);
int RunModels(const Arguments& arguments, const Connection& connection, const Console& console);
int RunStats(const Arguments& arguments, const Connection& connection, const Console& console);
int RunHealth(const Arguments& arguments, const Connection& connection, const Console& console);

// Prints the failure; its exit code.
int Fail(const absl::Status& status, const Arguments& arguments, const Console& console);

}  // namespace sluice::client
