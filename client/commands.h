// Runs the commands of `sluice`, without the process around them. Each function returns the
// process's exit code.
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
  bool progress;          // whether `error` is a terminal
  bool terminal = false;  // whether `out` is a terminal
  // Waits between redraws of --watch; returns false to end it. If empty, --watch ends after the
  // first drawing.
  std::function<bool(absl::Duration)> pause{};
  // Sets the function that an interrupt (Ctrl-C) calls from then on, on its own thread. With an
  // empty function an interrupt ends the process. When the call returns, the previous function is
  // not running and will not run again. If this member is empty, there are no interrupts.
  std::function<void(std::function<void()>)> set_interrupt{};
};

using RunAnalysis = std::function<int(const Arguments&, const Console&)>;
// Runs the command of `arguments`. The commands of client/analysis are passed to `analysis`.
int Run(const Arguments& arguments, const Console& console, const RunAnalysis& analysis);

using RunCommand = int (*)(const Arguments&, const Connection&, const Console&);
// Runs `run` with a connection to the server, after a check of `arguments.daemon`.
int RunConnected(RunCommand run, const Arguments& arguments, const Console& console);

int RunInfer(const Arguments& arguments, const Connection& connection, const Console& console);
int RunGenerate(const Arguments& arguments, const Connection& connection, const Console& console);
int RunEmbed(const Arguments& arguments, const Connection& connection, const Console& console);
int RunRerank(const Arguments& arguments, const Connection& connection, const Console& console);
int RunClassify(const Arguments& arguments, const Connection& connection, const Console& console);
int RunTag(const Arguments& arguments, const Connection& connection, const Console& console);
int RunExtract(const Arguments& arguments, const Connection& connection, const Console& console);
int RunFile(const Arguments& arguments, const Connection& connection, const Console& console);
int RunModels(const Arguments& arguments, const Connection& connection, const Console& console);
int RunStats(const Arguments& arguments, const Connection& connection, const Console& console);
int RunHealth(const Arguments& arguments, const Connection& connection, const Console& console);
int RunDoctor(const Arguments& arguments, const Connection& connection, const Console& console);
int RunBuckets(const Arguments& arguments, const Connection& connection, const Console& console);
int RunReview(const Arguments& arguments, const Connection& connection, const Console& console);
int RunLadder(const Arguments& arguments, const Connection& connection, const Console& console);
int RunExplain(const Arguments& arguments, const Connection& connection, const Console& console);
int RunLoad(const Arguments& arguments, const Connection& connection, const Console& console);
int RunUnload(const Arguments& arguments, const Connection& connection, const Console& console);
int RunReload(const Arguments& arguments, const Connection& connection, const Console& console);
int RunFit(const Arguments& arguments, const Console& console);

// Completes `request_arguments.request` into `request`: adds the prompt from standard input, or the
// name of the only model, if the flags leave them out. Prints any failure. Returns its exit code,
// or kExitOk.
int CompleteRequest(const RequestArguments& request_arguments, const Arguments& arguments,
                    const Connection& connection, const Console& console,
                    inference::ModelInferRequest* request);

// Prints what is wrong with an argument or an input, and returns kExitUsage.
int UsageError(const absl::Status& status, const Console& console);

// Prints the failure of a call and returns its exit code.
int Fail(const absl::Status& status, const Arguments& arguments, const Console& console);

}  // namespace sluice::client
