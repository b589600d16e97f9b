// sluice-load measures the load that a server can carry and the latency of its users.
#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/read_file.h"
#include "base/trace_file.h"
#include "base/write_file.h"
#include "loadtest/load/arguments.h"
#include "loadtest/load/report_page.h"

namespace sluice::load {
namespace {

int Fail(const absl::Status& status) {
  std::cerr << "sluice-load: " << status.message() << "\n";
  return absl::IsUnavailable(status) ? kExitUnavailable : kExitUsage;
}

int Run(const Arguments& arguments) {
  std::ostream* progress = arguments.quiet ? nullptr : &std::cerr;
  if (!arguments.out.empty()) {
    if (absl::Status status = CheckWritable(arguments.out); !status.ok()) return Fail(status);
  }
  EndedSession ended = RunSession(arguments.session, progress, isatty(STDERR_FILENO) == 1);
  if (!arguments.out.empty() && !ended.report.is_null()) {
    // The messages of servers may contain invalid UTF-8.
    const std::string text =
        ended.report.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    ended.status.Update(WriteFile(arguments.out, text));
  }
  if (!ended.status.ok()) return Fail(ended.status);
  return AllValid(ended.report) ? kExitValid : kExitInvalid;
}

int Report(const Arguments& arguments) {
  const absl::StatusOr<std::string> page = MakePage(arguments.reports);
  if (!page.ok()) return Fail(page.status());
  const absl::Status status = WriteFile(arguments.out, *page);
  return status.ok() ? kExitValid : Fail(status);
}

int Convert(const Arguments& arguments) {
  const absl::StatusOr<std::string> text = ReadFile(arguments.trace);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<std::vector<TraceRow>> rows = ParseTrace(*text);
  if (!rows.ok()) {
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(arguments.trace, ": ", rows.status().message())));
  }
  const absl::Status status =
      WriteFile(arguments.out,
                absl::EndsWith(arguments.out, ".csv") ? FormatCsv(*rows) : FormatJsonLines(*rows));
  return status.ok() ? kExitValid : Fail(status);
}

int Serve(const TestServerOptions& options) {
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  sigaddset(&end, SIGINT);
  pthread_sigmask(SIG_BLOCK, &end, nullptr);  // blocked before gRPC starts its threads
  const absl::StatusOr<std::unique_ptr<TestServer>> server = TestServer::Start(options);
  if (!server.ok()) return Fail(server.status());
  std::cout << "serving on " << (*server)->address() << std::endl;
  int signal = 0;
  sigwait(&end, &signal);
  std::cout << (*server)->requests() << " requests" << std::endl;
  return 0;
}

int Main(int argc, char** argv) {
  const Parsed parsed = ParseArguments(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  switch (parsed.arguments.command) {
    case Command::kRun:
      return Run(parsed.arguments);
    case Command::kReport:
      return Report(parsed.arguments);
    case Command::kTrace:
      return Convert(parsed.arguments);
    case Command::kNullServer:
      return Serve(parsed.arguments.server);
  }
  return kExitUsage;
}

}  // namespace
}  // namespace sluice::load

int main(int argc, char** argv) {
  // Debian's Abseil tracks the order of all locks, and gRPC takes many for each call.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return sluice::load::Main(argc, argv);
}
