#include "config/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "base/version.h"
#include "config/load.h"
#include "config/old_options.h"
#include "config/option.h"
#include "config/render.h"
#include "config/validate.h"
#include "server/common/option_specs.h"

namespace sluice {
namespace {

constexpr char kDescription[] =
    "sluiced serves models over variable-length sequences by the Open Inference Protocol on gRPC.";
constexpr char kFooter[] =
    "Any option can also be set in the YAML file (--config) and in the environment:\n"
    "--engine.batch.max-batch-tokens is engine.batch.max_batch_tokens and\n"
    "SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS. A flag wins over the environment, that over the file,\n"
    "and the file over the default. --help-all also lists the advanced options.\n"
    "\n"
    "Example: sluiced --model demo=models/demo --engine.batch.max-queue-delay 2ms";
constexpr size_t kHelpWidth = 90;
constexpr size_t kHelpIndent = 6;

// The text of each flag, before any of them is parsed.
struct Flags {
  std::string config_file;
  std::vector<std::string> models;
  bool check = false;
  bool print_config = false;
  bool print_default_config = false;
  bool version = false;
  std::vector<std::optional<std::string>> values;  // parallel to Options()
  std::vector<std::string> old;                    // flags of an earlier release
};

std::string OptionHelp(const Option& option) {
  const std::string text = absl::StrCat(HelpOf(option), " Expects ", option.expected, "; default ",
                                        option.format(Config()), ".");
  return absl::StrJoin(Wrap(text, kHelpWidth - kHelpIndent), "\n");
}

// Returns the keys of a model in the form of the options.
std::string ModelHelp() {
  std::string text = "\n\nmodels:\n";
  for (const OptionSpec<ModelSpec>& spec : OptionSpecs<ModelSpec>()) {
    absl::StrAppend(&text, "  ", spec.path, "\n");
    const std::string help =
        absl::StrCat(spec.help, " A reload applies it. Expects ", spec.expected, "; default ",
                     spec.format(ModelSpec()), ".");
    for (const std::string& line : Wrap(help, kHelpWidth - kHelpIndent)) {
      absl::StrAppend(&text, std::string(kHelpIndent, ' '), line, "\n");
    }
  }
  return text;
}

void AddFlags(Flags* flags, CLI::App* app) {
  app->get_formatter()->column_width(kHelpIndent);
  app->set_help_flag("-h,--help", "Print this help, and exit.");
  app->set_help_all_flag("--help-all", "Print this help with the advanced options, and exit.");
  app->footer(kFooter);
  app->allow_extras();  // these are reported with a suggestion
  app->add_option("--config", flags->config_file,
                  "YAML file of options; environment SLUICE_CONFIG.")
      ->type_name("FILE");
  app->add_option(
         "--model", flags->models,
         "A model to serve: a name and the directory of its config.json and weights.\n"
         "Repeatable; NAME:VERSION=DIR for a version other than 1, and DIR for the name of\n"
         "the directory. Replaces the models of the file. Environment: SLUICE_MODELS,\n"
         "comma-separated.")
      ->type_name("NAME=DIR")
      ->allow_extra_args(false);
  app->add_flag("--check", flags->check,
                "Validate the configuration, the device, the files of TLS and callers, the models' "
                "files and\n"
                "the headers of their weights, and exit.");
  app->add_flag("--print-config", flags->print_config,
                "Print the effective configuration and where each value came from, and exit.");
  app->add_flag("--print-default-config", flags->print_default_config,
                "Print a commented configuration file with all defaults, and exit.");
  app->add_flag("--version", flags->version, "Print the version, and exit.");
  flags->values.resize(Options().size());
  for (size_t i = 0; i < Options().size(); ++i) {
    const Option& option = Options()[i];
    CLI::Option* flag = app->add_option(option.Flag(), flags->values[i], OptionHelp(option));
    const bool shown = option.tier != Tier::kTest;
    flag->type_name("VALUE")->group(shown ? option.path.substr(0, option.path.rfind('.')) : "");
    if (option.shape == Shape::kSwitch) flag->expected(0, 1)->type_name("[true|false]");
  }
}

absl::Status UnknownArgument(const CLI::App& app, const std::string& argument) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) known.push_back(option->get_name());
  const std::string name = argument.substr(0, argument.find('='));
  const bool is_flag = absl::StartsWith(name, "-");
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown argument ", Quote(name.substr(0, 80)),
      is_flag ? Suggestion(name, known)
              : "; name a model by --model NAME=DIR, or a configuration by --config FILE"));
}

// Returns the arguments after the program's name in reverse, the order that CLI11 takes. Splits
// "--flag=" into the flag and an empty value, because CLI11 would report the value as missing.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    absl::string_view argument = argv[i];
    const bool empty_value =
        absl::StartsWith(argument, "--") && absl::ConsumeSuffix(&argument, "=");
    if (empty_value) arguments.emplace_back();
    arguments.emplace_back(argument);
  }
  return arguments;
}

void HideAdvancedFlags(CLI::App* app) {
  for (const Option& option : Options()) {
    if (option.tier == Tier::kAdvanced) app->get_option(option.Flag())->group("");
  }
}

// Returns the flags of an earlier release among `arguments`.
std::vector<std::string> OldFlags(const std::vector<std::string>& arguments) {
  std::vector<std::string> old;
  for (const std::string& argument : arguments) {
    const std::pair<std::string, std::string> halves =
        absl::StrSplit(argument, absl::MaxSplits('=', 1));
    absl::string_view path = halves.first;
    if (!absl::ConsumePrefix(&path, "--")) continue;
    AppendIfOld(absl::StrCat("flag ", halves.first), absl::StrReplaceAll(path, {{"-", "_"}}),
                halves.second, &old);
  }
  return old;
}

// Returns the help text if the arguments request it.
absl::StatusOr<std::optional<std::string>> ParseFlags(int argc, const char* const* argv,
                                                      Flags* flags) {
  CLI::App app(kDescription, "sluiced");
  AddFlags(flags, &app);
  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    HideAdvancedFlags(&app);
    return app.help();
  } catch (const CLI::CallForAllHelp&) {
    return absl::StrCat(app.help(), ModelHelp());
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  flags->old = OldFlags(app.remaining());
  if (!app.remaining().empty() && flags->old.empty()) {
    return UnknownArgument(app, app.remaining().front());
  }
  return std::nullopt;
}

absl::Status SetModels(const std::vector<std::string>& texts, const std::string& origin,
                       Config* config, Origins* origins) {
  std::vector<ModelSpec> models;
  for (const std::string& text : texts) {
    SLUICE_ASSIGN_OR_RETURN(ModelSpec model, ParseModelSpec(text, origin));
    models.push_back(std::move(model));
  }
  config->models = std::move(models);
  (*origins)["models"] = origin;
  return absl::OkStatus();
}

// Returns whether Kubernetes may set a variable of this name in pods, for a service such as
// sluice-server.
bool IsServiceLink(absl::string_view name) {
  return absl::StrContains(name, "_SERVICE_HOST") || absl::StrContains(name, "_SERVICE_PORT") ||
         absl::StrContains(name, "_TCP") || absl::EndsWith(name, "_PORT");
}

// Returns an error if a variable's name has the prefix of a section but matches no option.
absl::Status CheckNames(const Environment& environment) {
  std::set<std::string> sections;
  std::vector<std::string> known;
  for (const Option& option : Options()) {
    known.push_back(option.Environment());
    if (const size_t dot = option.path.find('.'); dot != std::string::npos) {
      sections.insert(
          absl::StrCat("SLUICE_", absl::AsciiStrToUpper(option.path.substr(0, dot)), "_"));
    }
  }
  for (const auto& [name, value] : environment) {
    const bool in_section = std::any_of(
        sections.begin(), sections.end(),
        [&name = name](const std::string& section) { return name.starts_with(section); });
    if (!in_section || IsServiceLink(name)) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("environment ", name.substr(0, 80),
                                                   ": unknown option", Suggestion(name, known)));
  }
  return absl::OkStatus();
}

absl::Status ApplyEnvironment(const Environment& environment, Config* config, Origins* origins) {
  SLUICE_RETURN_IF_ERROR(CheckNames(environment));
  for (const Option& option : Options()) {
    const auto variable = environment.find(option.Environment());
    if (variable == environment.end()) continue;
    const std::string origin = absl::StrCat("environment ", variable->first);
    SLUICE_RETURN_IF_ERROR(SetOption(option, variable->second, origin, config, origins));
  }
  const auto models = environment.find("SLUICE_MODELS");
  if (models == environment.end()) return absl::OkStatus();
  return SetModels(absl::StrSplit(models->second, ',', absl::SkipEmpty()),
                   "environment SLUICE_MODELS", config, origins);
}

absl::Status ApplyFlags(const Flags& flags, Config* config, Origins* origins) {
  for (size_t i = 0; i < Options().size(); ++i) {
    if (!flags.values[i].has_value()) continue;
    const Option& option = Options()[i];
    const std::string origin = absl::StrCat("flag ", option.Flag());
    const bool bare = option.shape == Shape::kSwitch && flags.values[i]->empty();
    SLUICE_RETURN_IF_ERROR(
        SetOption(option, bare ? "true" : *flags.values[i], origin, config, origins));
  }
  if (flags.models.empty()) return absl::OkStatus();
  return SetModels(flags.models, "flag --model", config, origins);
}

// Returns an error that lists the names and values of an earlier release, if there are any.
absl::Status CheckOldNames(const Flags& flags, const Environment& environment,
                           std::vector<std::string> old) {
  for (const OldOption& option : OldOptions()) {
    const auto variable = environment.find(VariableOf(option.path));
    if (variable == environment.end()) continue;
    AppendIfOld(absl::StrCat("environment ", variable->first), option.path, variable->second, &old);
  }
  for (size_t i = 0; i < Options().size(); ++i) {
    if (!flags.values[i].has_value()) continue;
    const Option& option = Options()[i];
    AppendIfOld(absl::StrCat("flag ", option.Flag()), option.path, *flags.values[i], &old);
  }
  old.insert(old.end(), flags.old.begin(), flags.old.end());
  if (old.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("these options are from an earlier release:\n  ", absl::StrJoin(old, "\n  ")));
}

absl::Status LoadAll(const Flags& flags, const Environment& environment, Config* config,
                     Origins* origins) {
  std::string file = flags.config_file;
  const auto named = environment.find("SLUICE_CONFIG");
  if (file.empty() && named != environment.end()) file = named->second;
  absl::Status status;
  std::vector<std::string> old;
  if (!file.empty()) status = LoadYamlFile(file, config, origins, &old);
  SLUICE_RETURN_IF_ERROR(CheckOldNames(flags, environment, std::move(old)));
  if (status.ok()) status = ApplyEnvironment(environment, config, origins);
  if (status.ok()) status = ApplyFlags(flags, config, origins);
  return status;
}

CommandLine Print(std::string text) {
  CommandLine line;
  line.action = CommandLine::Action::kPrint;
  line.text = std::move(text);
  return line;
}

}  // namespace

Environment EnvironmentOf(const char* const* variables) {
  Environment environment;
  for (; *variables != nullptr; ++variables) {
    const std::string_view variable = *variables;
    const size_t equals = std::min(variable.find('='), variable.size());
    if (!variable.starts_with("SLUICE_") || equals == variable.size()) continue;
    environment.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return environment;
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment) {
  Flags flags;
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::string> help, ParseFlags(argc, argv, &flags));
  if (help) return Print(*help);
  if (flags.version) return Print(absl::StrCat("sluiced ", Version(), "\n"));
  if (flags.print_default_config) return Print(RenderDefaultConfig());

  CommandLine line;
  Origins origins;
  SLUICE_RETURN_IF_ERROR(LoadAll(flags, environment, &line.config, &origins));
  // Printed before the rules across options are checked, to help find the option that breaks one.
  if (flags.print_config) return Print(RenderEffectiveConfig(line.config, origins));
  SLUICE_RETURN_IF_ERROR(ValidateConfig(line.config, origins));
  if (flags.check) line.action = CommandLine::Action::kCheck;
  return line;
}

}  // namespace sluice
