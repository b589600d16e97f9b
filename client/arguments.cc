#include "client/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/option_value.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "base/version.h"
#include "client/bucket_flags.h"
#include "client/completion.h"
#include "client/connection_flags.h"
#include "client/flag_values.h"
#include "client/ladder_flags.h"
#include "client/manage_flags.h"
#include "client/plan_flags.h"
#include "client/quantize_flags.h"
#include "client/request_flags.h"
#include "client/task_flags.h"
#include "client/verify_flags.h"

namespace sluice::client {
namespace {

constexpr char kDescription[] = "sluice sends requests to sluiced and shows what it serves.";
constexpr char kExitCodes[] =
    "Exit codes: 0 success; 1 a request failed, outputs differ, or the server is not healthy;\n"
    "2 wrong arguments or unreadable input; 3 no server answers, or it is shutting down;\n"
    "130 interrupted.";
constexpr Integer kDeadline{0, 86'400'000'000, Unit::kMicroseconds};

constexpr char kMetricsHelp[] =
    "HOST:PORT of the server's /metrics; none: do not ask. Default: port 8002 on the host of "
    "--server.";

// The values of the flags before they are checked.
struct Flags {
  std::string inference_server = "localhost:8001";  // the default of --server
  std::string admin_server;                         // its default in admin commands
  std::optional<std::string> server;
  std::optional<std::string> deadline;
  ConnectionArguments connection;
  bool version = false;

  RequestFlags requests;
  ModelsArguments models;
  TasksFlags tasks;
  StatsArguments stats;
  HealthArguments health;
  DoctorArguments doctor;
  std::string shell;
  BucketFlags buckets;
  LadderFlags ladder;
  ManageFlags manage;
  VerifyFlags verify;
  QuantizeFlags quantize;
  PlanFlags plan;
};

// Gives values names for the help, which would otherwise show C++ types.
void NameValues(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_expected_max() > 0) option->type_name("VALUE");
  }
  for (CLI::App* command : app->get_subcommands({})) NameValues(command);
}

void AddFlags(Flags* flags, CLI::App* app) {
  app->footer(kExitCodes);
  app->get_formatter()->column_width(kHelpIndent);
  app->set_help_flag("-h,--help", "Print this help, and exit.");
  app->add_flag("--version", flags->version, "Print the version, and exit.");
  app->add_option("--server", flags->server,
                  Help("HOST:PORT of the server. Default: SLUICE_SERVER in the environment, or "
                       "localhost:8001. For buckets, optimize, ladder, explain, plan, load, unload "
                       "and reload: its admin address; default: SLUICE_ADMIN, or port 8003 on the "
                       "host of the server."));
  app->add_option("--deadline", flags->deadline,
                  Help("End a call after this long, e.g. 500ms; 0: never. Default: 60s, and never "
                       "for generate, load and reload."));
  AddConnectionFlags(&flags->connection, app);
  AddRequestCommands(&flags->requests, app);
  AddTaskCommands(&flags->tasks, app);
  CLI::App* models = AddCommand("models", "List the models that are served.", app);
  models->add_option("--model", flags->models.model, "Only this model.");
  models->add_flag("--json", flags->models.json,
                   Help("Print JSON, with the types and shapes of inputs and outputs."));
  CLI::App* stats = AddCommand("stats", "Show counts, durations and padding efficiency.", app);
  stats->add_option("--model", flags->stats.model, "Only this model.");
  stats->add_option("--metrics-address", flags->stats.metrics_address, Help(kMetricsHelp));
  CLI::App* health =
      AddCommand("health", "Succeed if the server is ready, for health checks.", app);
  health->add_option("--service", flags->health.service,
                     Help("sluice.readiness (the same as the default, nothing) or "
                          "sluice.liveness."));
  CLI::App* doctor = AddCommand(
      "doctor", "Look at a server, its metrics and its buckets, and say what is odd.", app);
  doctor->add_option("--admin", flags->doctor.admin,
                     Help("HOST:PORT of the admin API. Default: SLUICE_ADMIN, or port 8003 on the "
                          "host of --server."));
  doctor->add_option("--metrics-address", flags->doctor.metrics_address, Help(kMetricsHelp));
  doctor->add_flag("--json", flags->doctor.json, "Print JSON.");
  CLI::App* completion =
      AddCommand("completion", "Print a script for a shell to complete commands and flags.", app);
  completion
      ->add_option("shell", flags->shell,
                   Help("One of bash, zsh, fish. For bash: source <(sluice completion bash)"))
      ->required();
  AddBucketCommands(&flags->buckets, app);
  AddLadderCommand(&flags->ladder, app);
  AddManageCommands(&flags->manage, app);
  AddVerifyCommand(&flags->verify, app);
  AddQuantizeCommand(&flags->quantize, app);
  AddPlanCommands(&flags->plan, app);
  app->require_subcommand(0, 1);
  NameValues(app);
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
  constexpr const char* kCommands[] = {"buckets", "optimize", "ladder", "explain",
                                       "load",    "unload",   "reload", "plan"};
  return std::find(std::begin(kCommands), std::end(kCommands), command) != std::end(kCommands);
}

// Returns whether the command may take as long as a generation or the loading of a model.
bool WaitsLong(const std::string& command) {
  return command == "generate" || command == "load" || command == "reload";
}

std::string ServerFor(const std::string& command, const Flags& flags) {
  if (flags.server.has_value()) return *flags.server;
  if (!IsAdminCommand(command)) return flags.inference_server;
  return flags.admin_server.empty() ? OnHostOf(flags.inference_server, 8003) : flags.admin_server;
}

absl::StatusOr<Arguments> Read(const Flags& flags, const CLI::App& app) {
  const std::string& command = app.get_name();
  Arguments arguments;
  arguments.connection = flags.connection;
  SLUICE_RETURN_IF_ERROR(
      ReadFlag("--server", Address{}, ServerFor(command, flags), &arguments.server));
  const char* by_default = WaitsLong(command) ? "0" : "60s";
  SLUICE_RETURN_IF_ERROR(ReadFlag("--deadline", kDeadline, flags.deadline.value_or(by_default),
                                  &arguments.deadline_us));
  if (command == "models") {
    arguments.command = Arguments::Command::kModels;
    arguments.models = flags.models;
  } else if (command == "health") {
    arguments.command = Arguments::Command::kHealth;
    arguments.health = flags.health;
  } else if (command == "stats") {
    arguments.command = Arguments::Command::kStats;
    arguments.stats = flags.stats;
    SLUICE_RETURN_IF_ERROR(ReadMetricsAddress(arguments.server, &arguments.stats.metrics_address));
  } else if (command == "doctor") {
    arguments.command = Arguments::Command::kDoctor;
    arguments.doctor = flags.doctor;
    std::string* const admin = &arguments.doctor.admin;
    if (admin->empty()) {
      *admin = flags.admin_server.empty() ? OnHostOf(arguments.server, 8003) : flags.admin_server;
    }
    SLUICE_RETURN_IF_ERROR(ReadFlag("--admin", Address{}, *admin, admin));
    SLUICE_RETURN_IF_ERROR(ReadMetricsAddress(arguments.server, &arguments.doctor.metrics_address));
  } else {
    SLUICE_RETURN_IF_ERROR(ReadRequestCommand(flags.requests, app, &arguments));
    SLUICE_RETURN_IF_ERROR(ReadTaskCommand(flags.tasks, app, &arguments));
    SLUICE_RETURN_IF_ERROR(ReadBucketCommand(flags.buckets, app, &arguments));
    SLUICE_RETURN_IF_ERROR(ReadLadderCommand(flags.ladder, app, &arguments));
    SLUICE_RETURN_IF_ERROR(ReadManageCommand(flags.manage, app, &arguments));
    SLUICE_RETURN_IF_ERROR(ReadVerifyCommand(flags.verify, app, &arguments));
    SLUICE_RETURN_IF_ERROR(ReadQuantizeCommand(flags.quantize, app, &arguments));
    SLUICE_RETURN_IF_ERROR(ReadPlanCommand(flags.plan, app, &arguments));
  }
  return arguments;
}

// Returns an error that names the arguments that no command takes, in their order, and a flag that
// is near to the first.
absl::Status UnexpectedArguments(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
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
  return absl::InvalidArgumentError(absl::StrCat(
      names_command && !absl::StartsWith(first, "-") ? "no command " : "unexpected: ",
      absl::StrJoin(extras, " "), Suggestion(first.substr(0, first.find('=')), flags)));
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
    if (const char* value = getenv(name); value != nullptr && *value != '\0') *address = value;
  };
  set_from("SLUICE_SERVER", &flags.inference_server);
  set_from("SLUICE_ADMIN", &flags.admin_server);
  CLI::App app(kDescription, "sluice");
  AddFlags(&flags, &app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Print(app.help());
  } catch (const CLI::ExtrasError&) {
    return UnexpectedArguments(app);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (flags.version) return Print(absl::StrCat("sluice ", Version(), "\n"));
  if (app.get_subcommands().empty()) {
    return absl::InvalidArgumentError("name a command, such as infer; see --help");
  }
  if (app.get_subcommands().front()->get_name() == "completion") {
    const bool known =
        std::find(std::begin(kShells), std::end(kShells), flags.shell) != std::end(kShells);
    if (!known) return ValueError("completion", "one of bash, zsh, fish", flags.shell);
    return Print(CompletionScript(app, flags.shell));
  }
  SLUICE_RETURN_IF_ERROR(CompleteConnection(getenv, &flags.connection));
  return Read(flags, *app.get_subcommands().front());
}

}  // namespace sluice::client
