#include "client/flag_values.h"

#include "absl/strings/str_join.h"
#include "base/text_wrap.h"

namespace sluice::client {

std::string Help(absl::string_view text) {
  constexpr size_t kHelpWidth = 96;
  return absl::StrJoin(Wrap(text, kHelpWidth - kHelpIndent), "\n");
}

CLI::App* AddCommand(const char* name, const char* description, CLI::App* app) {
  CLI::App* command = app->add_subcommand(name, description);
  command->fallthrough();  // --server and other flags may follow the command
  command->set_help_flag("-h,--help",
                         Help("Print this help, and exit. sluice --help lists the flags that every "
                              "command takes, such as --server and --token."));
  return command;
}

absl::Status FlagError(absl::string_view flag, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", problem));
}

absl::Status ValueError(absl::string_view flag, absl::string_view expected,
                        absl::string_view text) {
  return FlagError(flag, absl::StrCat("expected ", expected, ", got ", Quote(text.substr(0, 80))));
}

void EndParseOn(const absl::Status& status) {
  if (!status.ok()) throw CLI::ValidationError(std::string(status.message()));
}

CLI::Option* AddFlag(const std::string& flag, absl::string_view help, CLI::App* command,
                     std::function<absl::Status(const std::string&)> read) {
  return command->add_option_function<std::string>(
      flag, [read = std::move(read)](const std::string& text) { EndParseOn(read(text)); },
      Help(help));
}

}  // namespace sluice::client
