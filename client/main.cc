#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>

#include "client/exit_code.h"
#include "client/program.h"

namespace sluice::client {
namespace {

// Returns the path of a program that is installed next to this one.
std::string NextToThis(const char* name) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  // Without its own path, the program would be relative to the working directory.
  return failed ? std::string() : (self.parent_path() / name).string();
}

// Replaces this process by `program`, a path or a name in PATH. Returns the exit code if that
// fails.
int Become(const std::string& program, const char* remedy, char** argv, const Console& console) {
  execvp(program.c_str(), argv);
  *console.error << "sluice: this command is in the program " << program
                 << ", which cannot be started: "
                 << std::error_code(errno, std::generic_category()).message() << ". " << remedy
                 << "\n";
  return kExitUsage;
}

int BecomeOther(const Arguments& arguments, const Console& console, int argc, char** argv) {
  if (arguments.command != Arguments::Command::kServe) {
    return Become(NextToThis("sluice-analysis"),
                  "In a build folder: cmake --build FOLDER --target sluice-analysis", argv,
                  console);
  }
  const std::string installed = NextToThis("sluice-serve");
  // The program takes the arguments after its command.
  char** const own = std::find_if(argv + 1, argv + argc, [](const char* argument) {
    return std::string_view(argument) == "serve";
  });
  return Become(access(installed.c_str(), X_OK) == 0 ? installed : "sluice-serve",
                "It belongs to the package sluice-server; in the repository: pip install "
                "'./clients/python[gateway]'",
                own, console);
}

}  // namespace
}  // namespace sluice::client

int main(int argc, char** argv) {
  using namespace sluice::client;
  // Only sluice-serve reads the arguments after its command.
  const bool serves = argc > 1 && std::string_view(argv[1]) == "serve";
  return RunProgram(serves ? 2 : argc, argv,
                    [=](const Arguments& arguments, const Console& console) {
                      return BecomeOther(arguments, console, argc, argv);
                    });
}
