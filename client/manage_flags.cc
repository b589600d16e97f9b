#include "client/manage_flags.h"

#include <limits>

#include "client/flag_values.h"

namespace sluice::client {
namespace {

constexpr Integer kVersion{1, std::numeric_limits<int32_t>::max()};

void AddModel(ManageFlags* flags, const char* version_help, CLI::App* command) {
  command->add_option("model", flags->model, "The model's name.")->required();
  command->add_option("--model-version", flags->version, Help(version_help));
}

}  // namespace

void AddManageCommands(ManageFlags* flags, CLI::App* app) {
  AddModel(flags,
           "Default: the highest that there is, which takes the place of the model's other "
           "versions.",
           AddCommand("load",
                      "Load a model of the configuration or the repository, again if it is served.",
                      app));
  AddModel(flags, "Default: all.",
           AddCommand("unload", "Stop serving a model; its requests finish.", app));
  CLI::App* reload = AddCommand(
      "reload", "Have the server read its configuration again and apply what can change.", app);
  reload->add_flag("--json", flags->json, "Print the whole answer as JSON.");
}

absl::Status ReadManageCommand(const ManageFlags& flags, const CLI::App& command,
                               Arguments* arguments) {
  const std::string& name = command.get_name();
  if (name == "reload") {
    arguments->command = Arguments::Command::kReload;
    arguments->manage.json = flags.json;
    return absl::OkStatus();
  }
  if (name != "load" && name != "unload") return absl::OkStatus();
  arguments->command = name == "load" ? Arguments::Command::kLoad : Arguments::Command::kUnload;
  arguments->manage.model = flags.model;
  if (flags.version.empty()) return absl::OkStatus();
  return ReadFlag("--model-version", kVersion, flags.version, &arguments->manage.model_version);
}

}  // namespace sluice::client
