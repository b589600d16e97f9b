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
  // What an interrupt (Ctrl-C) calls from then on, on a thread of its own; nothing: it ends the
  // process. When it returns, what was to be called before neither runs nor will. Empty: nobody
  // interrupts.
  std::function<void(std::function<void()>)> set_interrupt{};
};

int Run(const Arguments& arguments, const Console& console);

int RunInfer(const Arguments& arguments, const Connection& connection, const Console& console);
int RunGenerate(const Arguments& arguments, const Connection& connection, const Console& console);
int RunFile(const Arguments& arguments, const Connection& connection, const Console& console);
int RunModels(const Arguments& arguments, const Connection& connection, const Console& console);
int RunStats(const Arguments& arguments, const Connection& connection, const Console& console);
int RunHealth(const Arguments& arguments, const Connection& connection, const Console& console);
int RunBuckets(const Arguments& arguments, const Connection& connection, const Console& console);
int RunOptimize(const Arguments& arguments, const Connection& connection, const Console& console);
int RunExplain(const Arguments& arguments, const Connection& connection, const Console& console);
int RunLoad(const Arguments& arguments, const Connection& connection, const Console& console);
int RunUnload(const Arguments& arguments, const Connection& connection, const Console& console);
int RunReload(const Arguments& arguments, const Connection& connection, const Console& console);
int RunFit(const Arguments& arguments, const Console& console);
int RunVerify(const Arguments& arguments, const Console& console);

// Completes `arguments.request` into `request`: with the prompt on standard input, or the name of
// the only model, where the flags left these open. Prints what fails; its exit code, or kExitOk.
int CompleteRequest(const RequestArguments& request_arguments, const Arguments& arguments,
                    const Connection& connection, const Console& console,
                    inference::ModelInferRequest* request);

// Prints the failure; its exit code.
int Fail(const absl::Status& status, const Arguments& arguments, const Console& console);

}  // namespace sluice::client
