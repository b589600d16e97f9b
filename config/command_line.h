// Parses the command line of sluiced: what it shall do, and with which configuration.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "config/config.h"

namespace sluice {

struct CommandLine {
  enum class Action {
    kRun,    // serve `config`, which is valid
    kPrint,  // write `text` to standard output and exit with 0: help, version, --print-config,
             // --print-default-config, or the verdict of a --check that found no error
  };
  Action action = Action::kRun;
  Config config;
  std::string text;
};

// Parses the arguments. `getenv` is std::getenv or a fake; a variable that is set but empty counts
// as set. An error names the flag, the environment variable or file and line, the option and the
// limit; the caller prints it and exits with status 2.
//
//   --config FILE          YAML; environment SLUICE_CONFIG
//   --model NAME=DIR       repeatable, NAME:VERSION=DIR for a version other than 1; replaces the
//                          models of environment (SLUICE_MODELS, comma-separated) and file
//   --<path>               any option of config/option.h
//   --check                validate, look for the model directories, exit
//   --print-config         the effective values and where each came from
//   --print-default-config the commented default file
//   --help, --version
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv,
                                             const std::function<const char*(const char*)>& getenv);

}  // namespace sluice
