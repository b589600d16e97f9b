#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <ostream>
#include <string>
#include <system_error>

#include "client/exit_code.h"
#include "client/program.h"

namespace sluice::client {
namespace {

// Replaces this process by `sluice-analysis`, which is installed next to it. Returns the exit code
// if that fails.
int BecomeAnalysis(char** argv, const Console& console) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::string program = self.parent_path() / "sluice-analysis";
  // Without its own path, `program` would be relative to the working directory.
  if (!failed) {
    execv(program.c_str(), argv);
    failed = {errno, std::generic_category()};
  }
  *console.error << "sluice: this command is in the program " << program
                 << ", which cannot be started: " << failed.message()
                 << ". In a build folder: cmake --build FOLDER --target sluice-analysis\n";
  return kExitUsage;
}

}  // namespace
}  // namespace sluice::client

int main(int argc, char** argv) {
  using namespace sluice::client;
  return RunProgram(argc, argv, [argv](const Arguments&, const Console& console) {
    return BecomeAnalysis(argv, console);
  });
}
