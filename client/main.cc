#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>

#include "client/exit_code.h"
#include "client/program.h"

namespace sluice::client {
namespace {

// Replaces this process by `sluice-analysis`, which is installed next to it. Returns the exit code
// if that fails.
int BecomeAnalysis(char** argv, const Console& console) {
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string program = self.parent_path() / "sluice-analysis";
  execv(program.c_str(), argv);
  *console.error << "sluice: this command is in the program " << program
                 << ", which cannot be started: " << std::strerror(errno)
                 << ". In a build folder: cmake --build FOLDER --target sluice-analysis\n";
  return kExitUsage;
}

}  // namespace
}  // namespace sluice::client

int main(int argc, char** argv) {
  using namespace sluice::client;
  return RunProgram(argc, argv, [argv](const Arguments& arguments, const Console& console) {
    return IsAnalysis(arguments.command) ? BecomeAnalysis(argv, console) : Run(arguments, console);
  });
}
