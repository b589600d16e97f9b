#include "client/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace sluice::client {
namespace {

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Returns a bash function, which zsh runs in its bash emulation.
std::string BashScript(const CLI::App& app) {
  const std::string common = absl::StrJoin(FlagsOf(app), " ");
  std::vector<std::string> names;
  std::string cases;
  for (const CLI::App* command : CommandsOf(app)) {
    names.push_back(command->get_name());
    absl::StrAppendFormat(&cases, "    %s) words=\"%s %s\" ;;\n", command->get_name(),
                          absl::StrJoin(FlagsOf(*command), " "), common);
  }
  return absl::StrFormat(
      "_sluice() {\n"
      "  local word command= words\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $word in\n"
      "      %s) command=$word; break ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command in\n"
      "    '') words=\"%s %s\" ;;\n"
      "%s"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
      "}\n"
      "complete -o default -F _sluice sluice\n",
      absl::StrJoin(names, "|"), absl::StrJoin(names, " "), common, cases);
}

// Returns the first line of a help text, quoted for fish.
std::string FishText(const std::string& help) {
  const std::string line = help.substr(0, help.find('\n'));
  return absl::StrCat("'", absl::StrReplaceAll(line, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishScript(const CLI::App& app) {
  std::string script = "complete -c sluice -n __fish_use_subcommand -f\n";
  const auto add_flags = [&](const CLI::App& of, const std::string& condition) {
    for (const CLI::Option* option : of.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        absl::StrAppend(&script, "complete -c sluice", condition, " -l ", name,
                        option->get_expected_max() > 0 ? " -r" : "", " -d ",
                        FishText(option->get_description()), "\n");
      }
    }
  };
  add_flags(app, "");
  for (const CLI::App* command : CommandsOf(app)) {
    absl::StrAppend(&script, "complete -c sluice -n __fish_use_subcommand -a ", command->get_name(),
                    " -d ", FishText(command->get_description()), "\n");
    add_flags(*command,
              absl::StrCat(" -n '__fish_seen_subcommand_from ", command->get_name(), "'"));
  }
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") return FishScript(app);
  if (shell == "bash") return BashScript(app);
  return "autoload -Uz bashcompinit && bashcompinit\n" + BashScript(app);
}

}  // namespace sluice::client
