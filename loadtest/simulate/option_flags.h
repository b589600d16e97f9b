// Makes flags for options of the engine from their specs. Name, range, help and format are the same
// as in the daemon. The default is the option's value when the flag is added.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/option_specs.h"

namespace sluice::loadtest {

// Returns the text wrapped to the width of the column to the right of a flag.
std::string FlagHelp(absl::string_view text);

// Returns the help without the part about the value 0.
absl::string_view HelpWithoutZero(absl::string_view help);

// Adds a flag such as --max-queue-delay for "max_queue_delay". Values below `least` are
// refused. Requires that `options` outlives the parse. `least` is for integers only and lies within
// their range.
template <typename S>
CLI::Option* AddOptionFlag(CLI::App* app, absl::string_view path, S* options,
                           std::optional<int64_t> least = std::nullopt) {
  const OptionSpec<S>& spec = OptionSpecOf<S>(path);
  std::optional<Integer> range;
  if (least.has_value()) range = {*least, spec.integer->max, spec.integer->unit};
  const std::string expected = range.has_value() ? range->Expected() : spec.expected;
  const auto read = [&spec, options, range, expected](const std::string& text) {
    int64_t number = 0;
    const bool valid = range.has_value() ? range->Parse(text, &number) && spec.set(number, options)
                                         : spec.parse(text, options);
    if (valid) return;
    throw CLI::ValidationError(spec.Flag(), absl::StrCat("expected ", expected, ", got ", text));
  };
  const absl::string_view help = least.has_value() ? HelpWithoutZero(spec.help) : spec.help;
  return app
      ->add_option_function<std::string>(spec.Flag(), read,
                                         FlagHelp(absl::StrCat(help, " Expects ", expected, ".")))
      ->default_str(spec.format(*options));
}

}  // namespace sluice::loadtest
