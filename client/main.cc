#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "client/arguments.h"
#include "client/commands.h"
#include "client/exit_code.h"

int main(int argc, char** argv) {
  using namespace sluice::client;
  const auto arguments =
      ParseArguments(argc, argv, [](const char* name) -> const char* { return std::getenv(name); });
  if (!arguments.ok()) {
    std::cerr << "sluice: " << arguments.status().message() << "\n";
    return kExitUsage;
  }
  const Console console = {&std::cin, &std::cout, &std::cerr, isatty(STDERR_FILENO) == 1};
  return Run(*arguments, console);
}
