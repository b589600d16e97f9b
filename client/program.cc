#include "client/program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

#include "absl/time/clock.h"
#include "client/exit_code.h"
#include "client/interrupts.h"

namespace sluice::client {

int RunProgram(int argc, char** argv, const RunAnalysis& analysis) {
  const auto arguments =
      ParseArguments(argc, argv, [](const char* name) -> const char* { return std::getenv(name); });
  if (!arguments.ok()) {
    std::cerr << "sluice: " << arguments.status().message() << "\n";
    return kExitUsage;
  }
  // Only commands that have something to show after an interrupt handle it.
  std::optional<Interrupts> interrupts;
  if (arguments->command == Arguments::Command::kGenerate) interrupts.emplace();
  const Console console = {.in = &std::cin,
                           .out = &std::cout,
                           .error = &std::cerr,
                           .progress = isatty(STDERR_FILENO) == 1,
                           .terminal = isatty(STDOUT_FILENO) == 1,
                           .pause =
                               [](absl::Duration duration) {
                                 absl::SleepFor(duration);
                                 return true;
                               },
                           .set_interrupt =
                               [&](std::function<void()> call) {
                                 if (interrupts.has_value()) interrupts->Set(std::move(call));
                               }};
  const int code = Run(*arguments, console, analysis);
  if (std::cout.flush()) return code;
  std::cerr << "sluice: cannot write all of the output to standard output: " << std::strerror(errno)
            << "\n";
  return kExitFailed;
}

}  // namespace sluice::client
