// The one table of options. The YAML loader, the flags, the environment, the help text, the printed
// configuration and the commented default file are all made from it.
//
// An option's name is its path in struct Config: `engine.batch.max_batch_tokens` is the key in
// YAML,
// --engine.batch.max-batch-tokens the flag and SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS the environment
// variable. Its default is what the option struct starts with.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "config/config.h"
#include "config/value.h"

namespace sluice {

struct Option {
  std::string path;
  std::string help;      // effect, special values
  std::string expected;  // type, unit and range, to follow "expected"
  Shape shape;
  std::function<bool(absl::string_view text, Config* config)> parse;  // false: config unchanged
  std::function<std::string(const Config& config)> format;            // as YAML
  std::function<void(const Config& from, Config* to)> copy;
  bool live = false;  // a reload applies it; else it needs a restart

  std::string Flag() const;
  std::string Environment() const;
};

// Options of one section stand together.
const std::vector<Option>& Options();

// nullptr when there is none.
const Option* FindOption(absl::string_view path);

// The keys directly under `section` ("": the top level), sections and options; empty when there is
// no such section.
std::vector<std::string> KeysUnder(absl::string_view section);

// Where each value came from: path -> "FILE:LINE", "environment NAME" or "flag NAME"; paths that
// are not in it have their default. The list of models has the path "models".
using Origins = std::map<std::string, std::string, std::less<>>;
std::string OriginOf(const Origins& origins, absl::string_view path);

// "ORIGIN: PATH: PROBLEM", as InvalidArgument.
absl::Status ConfigError(absl::string_view origin, absl::string_view path,
                         absl::string_view problem);

// Sets an option and records the origin. The error names origin, option, what was expected and what
// came instead.
absl::Status SetOption(const Option& option, absl::string_view text, const std::string& origin,
                       Config* config, Origins* origins);

}  // namespace sluice
