// Parses the command line of sluiced: the action to take, and the configuration.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "config/config.h"

namespace sluice {

struct CommandLine {
  enum class Action {
    kRun,    // serve `config`, which is valid
    kCheck,  // read the files of `config`, which is valid, and exit: --check
    kPrint,  // write `text` to standard output and exit with 0: help, version, --print-config,
             // --print-default-config
  };
  Action action = Action::kRun;
  Config config;
  std::string text;
};

// The environment variables whose names begin with SLUICE_.
using Environment = std::map<std::string, std::string>;
// Returns the SLUICE_ variables of `variables`, which ends with nullptr as environ does.
Environment EnvironmentOf(const char* const* variables);

// Parses the arguments. A variable that is set but empty counts as set. A variable whose name has
// the prefix of a section but matches no option is an error. An error names the flag, the
// environment variable or file and line, the option and the limit; the caller prints it and exits
// with status 2. If names of an earlier release are used (config/old_options.h), one error lists
// all of them, each with its replacement.
//
//   --config FILE          YAML; environment SLUICE_CONFIG
//   --model NAME=DIR       repeatable, NAME:VERSION=DIR for a version other than 1, DIR for the
//                          name of the folder; replaces the models of environment
//                          (SLUICE_MODELS, comma-separated) and file
//   --<path>               any option of config/option.h
//   --check                validate, open the device, read all files, exit
//   --print-config         the effective values and where each came from
//   --print-default-config the commented default file of basic options
//   --help                 the basic options; --help-all: the advanced ones too
//   --version
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment);

}  // namespace sluice
