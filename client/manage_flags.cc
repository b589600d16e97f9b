#include <limits>

#include "client/command_flags.h"
#include "client/flag_values.h"

namespace sluice::client {
namespace {

void AddModel(Arguments::Command which, const char* version_help, Arguments* arguments,
              CLI::App* command) {
  ManageArguments& own = arguments->manage;
  command->add_option("model", own.model, "The model's name.")->required();
  AddFlag("--model-version", version_help, command, Integer{1, std::numeric_limits<int32_t>::max()},
          &own.model_version);
  command->callback([=] { arguments->command = which; });
}

}  // namespace

void AddManageCommands(Arguments* arguments, CLI::App* app) {
  AddModel(
      Arguments::Command::kLoad,
      "Default: the highest version, which replaces the model's other versions.", arguments,
      AddCommand("load", "Load or reload a model of the configuration or the repository.", app));
  AddModel(Arguments::Command::kUnload, "Default: all.", arguments,
           AddCommand("unload", "Stop serving a model; its requests finish.", app));
  CLI::App* reload =
      AddCommand("reload", "Make the server read its configuration again, without a restart.", app);
  reload->add_flag("--json", arguments->manage.json, "Print the whole answer as JSON.");
  reload->callback([=] { arguments->command = Arguments::Command::kReload; });
}

}  // namespace sluice::client
