// Parses the command lines of the programs in this folder.
#pragma once

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/text_wrap.h"

namespace sluice::loadtest {

inline constexpr int kExitWrongArguments = 2;

// Appends the names of the flags of `app` and its groups.
inline void AppendFlagNames(const CLI::App& app, std::vector<std::string>* names) {
  for (const CLI::Option* flag : app.get_options()) names->push_back(flag->get_name());
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    AppendFlagNames(*group, names);
  }
}

// Parses the arguments. Returns nullopt if the program should run, or the exit status to end with:
// 0 after --help and --version, which are printed, or kExitWrongArguments after an error message.
inline std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> known;
    AppendFlagNames(app, &known);
    const std::string argument = app.remaining(/*recurse=*/true).front();
    const std::string name = argument.substr(0, argument.find('='));
    std::cerr << "unknown argument " << name << Suggestion(name, known) << "\n";
    return kExitWrongArguments;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitWrongArguments;
  }
  return std::nullopt;
}

}  // namespace sluice::loadtest
