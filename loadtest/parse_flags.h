// Parses the command lines of the programs in this folder.
#pragma once

#include <optional>

#include "CLI/CLI.hpp"

namespace sluice::loadtest {

inline constexpr int kExitWrongArguments = 2;

// Parses the arguments. Returns nullopt if the program should run, or the exit status to end with:
// 0 after --help and --version, which are printed, or kExitWrongArguments after an error message.
inline std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitWrongArguments;
  }
  return std::nullopt;
}

}  // namespace sluice::loadtest
