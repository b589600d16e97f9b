#include "client/command_flags.h"
#include "client/flag_values.h"
#include "engine/option_specs.h"

namespace sluice::client {
namespace {

using Action = LadderArguments::Action;

absl::Status Check(LadderArguments* ladder) {
  std::erase_if(ladder->options, [](const auto& option) { return option.second.empty(); });
  for (const auto& [option, value] : ladder->options) {
    const OptionSpec<LadderOptions>& spec = OptionSpecOf<LadderOptions>(option);
    if (ladder->action != Action::kSet) return FlagError(spec.Flag(), "only valid with set");
    LadderOptions ignored;
    if (!spec.parse(value, &ignored)) return ValueError(spec.Flag(), spec.expected, value);
  }
  if (ladder->action == Action::kSet && ladder->options.empty()) {
    return FlagError("--strategy", "set needs at least one option");
  }
  const bool changes = ladder->action == Action::kSet || ladder->action == Action::kReset;
  return ladder->keep && !changes ? FlagError("--keep", "only valid with set and reset")
                                  : absl::OkStatus();
}

}  // namespace

void AddLadderCommand(Arguments* arguments, CLI::App* app) {
  LadderArguments& own = arguments->ladder;
  CLI::App* ladder =
      AddCommand("ladder", "Show, try or set the options of a served model's ladder.", app);
  AddFlag(
      "action",
      absl::StrCat(
          "One of ", Choice<Action>().Expected().substr(7),
          ". show: the options in effect; try: every strategy on the recent traffic, side by side; "
          "set: set options while requests are served; reset: return to the configuration."),
      ladder,
      [&own](const std::string& text) {
        return ReadFlag("ACTION", Choice<Action>(), text, &own.action);
      })
      ->required();
  ladder->add_option("model,--model", own.model,
                     "The model; may be left out if the server has only one.");
  ladder->add_option("--model-version", own.model_version, "Default: the highest.");
  for (const OptionSpec<LadderOptions>& spec : OptionSpecs<LadderOptions>()) {
    if (!IsChoosable(spec.path)) continue;
    ladder->add_option(spec.Flag(), own.options[spec.path],
                       Help(absl::StrCat("For set: ", spec.help)));
  }
  ladder->add_flag("--keep", own.keep,
                   Help("For set and reset: keep the change after a restart; the daemon needs an "
                        "engine.ladder.file."));
  ladder->add_flag("--json", own.json, "Print the whole answer as JSON.");
  ladder->callback([=, &own] {
    arguments->command = Arguments::Command::kLadder;
    EndParseOn(Check(&own));
  });
}

}  // namespace sluice::client
