#include "client/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/option_value.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "base/version.h"
#include "client/command_flags.h"
#include "client/completion.h"
#include "client/connection_flags.h"
#include "client/flag_values.h"
#include "client/plan_flags.h"

namespace sluice::client {
namespace {

constexpr char kDescription[] =
    "sluice sends requests to a sluiced server and shows its models, buckets and statistics.";
constexpr char kExitCodes[] =
    "Exit codes: 0 success; 1 a request failed, outputs differ, or the server is not healthy;\n"
    "2 wrong arguments or unreadable input; 3 the server does not answer or is shutting down;\n"
    "130 interrupted.";
constexpr Integer kDeadline{0, 86'400'000'000, Unit::kMicroseconds};

constexpr char kMetricsHelp[] =
    "HOST:PORT of the server's /metrics; none: do not read it. Default: port 8002 on the host of "
    "--server.";

// Flag values that depend on other flags or on the environment, before they are checked.
struct Flags {
  std::string inference_server = "localhost:8001";  // the default of --server
  std::string default_admin;                        // SLUICE_ADMIN
  std::optional<std::string> server;
  std::optional<std::string> admin;
  std::optional<std::string> deadline;
  bool names_server = false;  // SLUICE_SERVER is set
  std::string shell;
  PlanFlags plan;
};

// CLI11 splits a word in brackets at its commas if its option takes several values. It does not do
// so if this character precedes the word.
constexpr char kGuard = '\x01';

std::string Guarded(std::string word) {
  if (word.starts_with('[')) word.insert(word.begin(), kGuard);
  return word;
}

std::string Unguarded(std::string word) {
  if (word.size() > 1 && word[0] == kGuard && word[1] == '[') word.erase(0, 1);
  return word;
}

// Gives values readable names for the help, which would otherwise show C++ types, and removes their
// guards.
void CompleteValues(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_expected_max() > 0) option->type_name("VALUE")->transform(Unguarded);
  }
  for (CLI::App* command : app->get_subcommands({})) CompleteValues(command);
}

void AddFlags(Flags* flags, Arguments* arguments, CLI::App* app) {
  using Command = Arguments::Command;
  app->footer(kExitCodes);
  app->get_formatter()->column_width(kHelpIndent);
  app->set_help_flag("-h,--help", "Print this help, and exit.");
  app->set_version_flag("--version", absl::StrCat("sluice ", Version(), "\n"),
                        "Print the version, and exit.");
  app->add_option("--server", flags->server,
                  Help("HOST:PORT of the server. Default: SLUICE_SERVER in the environment, or "
                       "localhost:8001. https:// before an address means TLS."));
  app->add_option("--admin", flags->admin,
                  Help("HOST:PORT of the server's admin API, for doctor, buckets, review, ladder, "
                       "explain, plan, load, unload and reload. It has TLS only with https:// "
                       "(server.admin.secured). Default: SLUICE_ADMIN in the environment, or port "
                       "8003 on the host of --server."));
  app->add_option("--deadline", flags->deadline,
                  Help("End a call after this long, e.g. 500ms; 0: never. Default: 60s, but never "
                       "for generate, load and reload."));
  AddConnectionFlags(&arguments->connection, app);
  AddRequestCommands(arguments, app);
  AddTaskCommands(arguments, app);
  CLI::App* models = AddCommand("models", "List the models that are served.", app);
  models->add_option("--model", arguments->models.model, "Only this model.");
  models->add_flag("--json", arguments->models.json,
                   Help("Print JSON, with the types and shapes of inputs and outputs."));
  models->callback([=] { arguments->command = Command::kModels; });
  CLI::App* stats = AddCommand("stats", "Show counts, durations and bucket fill.", app);
  stats->add_option("--model", arguments->stats.model, "Only this model.");
  stats->add_option("--metrics-address", arguments->stats.metrics_address, Help(kMetricsHelp));
  stats->add_flag("--json", arguments->stats.json, "Print JSON.");
  stats->callback([=] { arguments->command = Command::kStats; });
  CLI::App* health =
      AddCommand("health", "Succeed if the server is ready, for health checks.", app);
  health->add_option(
      "--service", arguments->health.service,
      Help("sluice.readiness (the same as the default, an empty name) or sluice.liveness."));
  health->callback([=] { arguments->command = Command::kHealth; });
  CLI::App* doctor = AddCommand(
      "doctor", "Check a server, its metrics and its buckets, and report problems.", app);
  doctor->add_option("--metrics-address", arguments->doctor.metrics_address, Help(kMetricsHelp));
  doctor->add_flag("--json", arguments->doctor.json, "Print JSON.");
  doctor->callback([=] { arguments->command = Command::kDoctor; });
  // Its arguments are read by the program sluice-serve.
  CLI::App* serve = AddCommand(
      "serve", "Start a daemon and an HTTP gateway for a folder; in the package sluice-server.",
      app);
  serve->set_help_flag();
  serve->fallthrough(false)->allow_extras();
  serve->callback([=] { arguments->command = Command::kServe; });
  CLI::App* completion =
      AddCommand("completion", "Print a shell script that completes commands and flags.", app);
  AddFlag("shell", "One of bash, zsh, fish. For bash: source <(sluice completion bash)", completion,
          [flags](const std::string& text) {
            return ReadFlag("completion", OneOf{{"bash", "zsh", "fish"}}, text, &flags->shell);
          })
      ->required();
  AddBucketCommands(arguments, app);
  AddLadderCommand(arguments, app);
  AddManageCommands(arguments, app);
  AddVerifyCommand(arguments, app);
  AddQuantizeCommand(arguments, app);
  AddPlanCommands(&flags->plan, app);
  app->require_subcommand(0, 1);
  CompleteValues(app);
}

std::string OnHostOf(const std::string& server, int port) {
  return absl::StrCat(server.substr(0, server.rfind(':')), ":", port);
}

absl::Status ReadMetricsAddress(const std::string& server, std::string* address) {
  if (*address == "none") {
    address->clear();
    return absl::OkStatus();
  }
  if (address->empty()) *address = OnHostOf(server, 8002);
  return ReadFlag("--metrics-address", Address{}, *address, address);
}

bool IsAdminCommand(const std::string& command) {
  constexpr const char* kCommands[] = {"buckets", "review", "ladder", "explain",
                                       "load",    "unload", "reload", "plan"};
  return std::find(std::begin(kCommands), std::end(kCommands), command) != std::end(kCommands);
}

// Returns whether the command may run for the duration of a generation or of a model's loading.
bool WaitsLong(const std::string& command) {
  return command == "generate" || command == "load" || command == "reload";
}

// Reads HOST:PORT, or the same after http:// or https://, which decides whether the connection uses
// TLS.
absl::Status ReadEndpoint(const char* flag, std::string_view text, Endpoint* endpoint) {
  if (text.starts_with("https://")) {
    endpoint->connection.tls = true;
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    endpoint->connection.tls = false;
    text.remove_prefix(7);
  }
  return ReadFlag(flag, Address{}, std::string(text), &endpoint->address);
}

// Reads the admin address of the daemon at `server`. The flags of the connection are for `server`:
// the admin address has TLS only if it begins with https://. A token that was meant for a
// connection with TLS is not sent without it.
absl::Status ReadAdmin(const Flags& flags, const Endpoint& server, Endpoint* admin) {
  admin->connection = server.connection;
  admin->connection.tls = false;
  const std::string text = flags.admin.value_or(flags.default_admin);
  SLUICE_RETURN_IF_ERROR(ReadEndpoint(flags.admin.has_value() ? "--admin" : "SLUICE_ADMIN",
                                      text.empty() ? OnHostOf(server.address, 8003) : text, admin));
  if (server.connection.tls && !admin->connection.tls) admin->connection.token.clear();
  return absl::OkStatus();
}

// Sets the address that the command calls, and how to reach it.
absl::Status ReadServer(const std::string& command, const Flags& flags, Arguments* arguments) {
  Endpoint server{.address = "", .connection = arguments->connection};
  SLUICE_RETURN_IF_ERROR(
      ReadEndpoint("--server", flags.server.value_or(flags.inference_server), &server));
  arguments->calls_admin = IsAdminCommand(command);
  if (arguments->calls_admin) {
    Endpoint admin;
    SLUICE_RETURN_IF_ERROR(ReadAdmin(flags, server, &admin));
    arguments->chosen_admin = !flags.admin.has_value();
    if (flags.server.has_value() || (flags.names_server && arguments->chosen_admin)) {
      arguments->daemon = std::move(server);
    }
    server = std::move(admin);
  }
  arguments->server = std::move(server.address);
  arguments->connection = std::move(server.connection);
  return absl::OkStatus();
}

// Completes the arguments of a command.
absl::Status Complete(const Flags& flags, const CLI::App& app, Arguments* arguments) {
  const std::string& command = app.get_name();
  SLUICE_RETURN_IF_ERROR(ReadServer(command, flags, arguments));
  const char* by_default = WaitsLong(command) ? "0" : "60s";
  SLUICE_RETURN_IF_ERROR(ReadFlag("--deadline", kDeadline, flags.deadline.value_or(by_default),
                                  &arguments->deadline_us));
  if (command == "stats")
    return ReadMetricsAddress(arguments->server, &arguments->stats.metrics_address);
  if (command == "doctor") {
    SLUICE_RETURN_IF_ERROR(
        ReadAdmin(flags, {arguments->server, arguments->connection}, &arguments->doctor.admin));
    return ReadMetricsAddress(arguments->server, &arguments->doctor.metrics_address);
  }
  return ReadPlanCommand(flags.plan, app, arguments);
}

// Returns an error that lists, in their order, the arguments that no command takes, and a flag with
// a name similar to the first one.
absl::Status UnexpectedArguments(const CLI::App& app) {
  std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  std::transform(extras.begin(), extras.end(), extras.begin(), Unguarded);
  std::vector<std::string> flags;
  std::vector<const CLI::App*> commands = {&app};
  for (const CLI::App* command : app.get_subcommands()) commands.push_back(command);
  for (const CLI::App* command : commands) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
  }
  const bool names_command = app.get_subcommands().empty();
  if (names_command) {
    for (const CLI::App* command : app.get_subcommands({})) flags.push_back(command->get_name());
  }
  const std::string& first = extras.front();
  const std::string name = first.substr(0, first.find('='));
  if (!names_command && name.starts_with("--")) {
    const CLI::App* const command = app.get_subcommands().front();
    // Flags after the command would be its own, so this one precedes it.
    if (command->get_option_no_throw(name) != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(name, " belongs after the command: sluice ",
                                                     command->get_name(), " ", name, " ..."));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(names_command && !absl::StartsWith(first, "-") ? "no command " : "unexpected: ",
                   absl::StrJoin(extras, " "), Suggestion(name, flags)));
}

Arguments Print(std::string text) {
  Arguments arguments;
  arguments.text = std::move(text);
  return arguments;
}

}  // namespace

absl::StatusOr<Arguments> ParseArguments(int argc, const char* const* argv,
                                         const std::function<const char*(const char*)>& getenv) {
  Flags flags;
  const auto set_from = [&](const char* name, std::string* address) {
    const char* const value = getenv(name);
    const bool set = value != nullptr && *value != '\0';
    if (set) *address = value;
    return set;
  };
  flags.names_server = set_from("SLUICE_SERVER", &flags.inference_server);
  set_from("SLUICE_ADMIN", &flags.default_admin);
  CLI::App app(kDescription, "sluice");
  Arguments arguments;
  AddFlags(&flags, &arguments, &app);
  std::vector<std::string> words;  // the last one first
  for (int i = argc - 1; i > 0; --i) words.push_back(Guarded(argv[i]));
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return Print(app.help());
  } catch (const CLI::CallForVersion& version) {
    return Print(version.what());
  } catch (const CLI::ExtrasError&) {
    return UnexpectedArguments(app);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (app.get_subcommands().empty()) {
    return absl::InvalidArgumentError("no command given; name one, such as infer, or see --help");
  }
  if (!flags.shell.empty()) return Print(CompletionScript(app, flags.shell));
  SLUICE_RETURN_IF_ERROR(CompleteConnection(getenv, &arguments.connection));
  SLUICE_RETURN_IF_ERROR(Complete(flags, *app.get_subcommands().front(), &arguments));
  return arguments;
}

}  // namespace sluice::client
