#include "client/ladder_flags.h"

#include "base/status_macros.h"
#include "client/flag_values.h"
#include "engine/option_specs.h"

namespace sluice::client {
namespace {

using Action = LadderArguments::Action;

}  // namespace

void AddLadderCommand(LadderFlags* flags, CLI::App* app) {
  CLI::App* ladder = AddCommand(
      "ladder", "Show, try or choose how a served model's ladder of buckets is made.", app);
  ladder
      ->add_option("action", flags->action,
                   Help(absl::StrCat("One of ", Choice<Action>().Expected().substr(7),
                                     ". show: the options in effect; try: every strategy on the "
                                     "recent traffic, side by side; set: choose, while requests "
                                     "are served; reset: return to the configuration.")))
      ->required();
  ladder->add_option("model", flags->arguments.model,
                     "The model; may be left out when the server has only one.");
  ladder->add_option("--model-version", flags->arguments.model_version, "Default: the highest.");
  for (const OptionSpec<LadderOptions>& spec : OptionSpecs<LadderOptions>()) {
    if (!IsChoosable(spec.path)) continue;
    ladder->add_option(spec.Flag(), flags->options[spec.path],
                       Help(absl::StrCat("For set: ", spec.help)));
  }
  ladder->add_flag("--keep", flags->arguments.keep,
                   Help("For set and reset: also after a restart; the daemon needs an "
                        "engine.ladder.file."));
  ladder->add_flag("--json", flags->arguments.json, "Print the whole answer as JSON.");
}

absl::Status ReadLadderCommand(const LadderFlags& flags, const CLI::App& command,
                               Arguments* arguments) {
  if (command.get_name() != "ladder") return absl::OkStatus();
  arguments->command = Arguments::Command::kLadder;
  arguments->ladder = flags.arguments;
  LadderArguments& own = arguments->ladder;
  SLUICE_RETURN_IF_ERROR(ReadFlag("ACTION", Choice<Action>(), flags.action, &own.action));
  for (const auto& [option, value] : flags.options) {
    if (value.empty()) continue;
    const OptionSpec<LadderOptions>& spec = OptionSpecOf<LadderOptions>(option);
    if (own.action != Action::kSet) return FlagError(spec.Flag(), "only set takes it");
    LadderOptions ignored;
    if (!spec.parse(value, &ignored)) return ValueError(spec.Flag(), spec.expected, value);
    own.options[option] = value;
  }
  if (own.action == Action::kSet && own.options.empty()) {
    return FlagError("--strategy", "set needs at least one option");
  }
  const bool changes = own.action == Action::kSet || own.action == Action::kReset;
  return own.keep && !changes ? FlagError("--keep", "only set and reset take it")
                              : absl::OkStatus();
}

}  // namespace sluice::client
