#include "client/arguments.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/bucket_flags.h"
#include "client/flag_values.h"
#include "client/request.h"
#include "config/value.h"
#include "config/version.h"

namespace sluice::client {
namespace {

constexpr char kDescription[] = "sluice sends requests to sluiced and shows what it serves.";
constexpr char kExitCodes[] =
    "Exit codes: 0 success; 1 a request failed, or the server is not healthy; 2 wrong arguments "
    "or\n"
    "unreadable input; 3 no server answers, or it is shutting down.";
constexpr char kInferFooter[] =
    "A line of FILE is a JSON object with \"text\" or \"ids\" and, optionally, \"id\", \"model\",\n"
    "\"version\", \"outputs\" and any of max_tokens, temperature, top_k, top_p, min_p, seed, "
    "num_top,\n"
    "priority, timeout; flags stand for what a line leaves out. The results are JSON lines in the\n"
    "order of the input, a summary goes to standard error.\n"
    "\n"
    "Example: sluice infer --text \"Once upon a time\" --max-tokens 64 --temperature 0.8";
constexpr Integer kDeadline{0, 86'400'000'000, Unit::kMicroseconds};
constexpr Integer kConcurrency{1, 1024};

// What the flags say, before any of it is judged.
struct Flags {
  std::string server = "localhost:8001";
  std::string deadline = "60s";
  bool version = false;

  std::optional<std::string> text;
  std::optional<std::string> ids;
  std::string file;
  std::string model;
  std::string model_version;
  std::string id;
  std::string outputs;
  std::string concurrency = "8";
  bool json = false;
  std::vector<std::optional<std::string>> parameters;  // beside Parameters()

  StatsArguments stats;
  HealthArguments health;
  BucketFlags buckets;
};

void AddInfer(Flags* flags, CLI::App* app) {
  CLI::App* infer = AddCommand("infer", "Run one request, or many from a file.", app);
  infer->footer(kInferFooter);
  infer->add_option("--text", flags->text, "The prompt, for models with a tokenizer.");
  infer->add_option("--ids", flags->ids, "The prompt as token ids: 1,2,3.");
  infer->add_option("--file", flags->file, Help("Requests as JSON lines; - for standard input."));
  infer->add_option("--model", flags->model,
                    Help("The model; may be left out when the server has only one."));
  infer->add_option("--model-version", flags->model_version, "Default: the highest.");
  infer->add_option("--id", flags->id, Help("A name for the request in logs; returned."));
  flags->parameters.resize(Parameters().size());
  for (size_t i = 0; i < Parameters().size(); ++i) {
    infer->add_option(Parameters()[i].Flag(), flags->parameters[i], Help(Parameters()[i].help));
  }
  infer->add_option(
      "--outputs", flags->outputs,
      Help("The outputs wanted, with commas between, instead of the default ones: "
           "output_ids, sequence_length, logprobs, finish_reason, text_output, top_ids, "
           "top_logprobs, logits, prompt_logprobs, xsa_cos_sim, xsa_proj_frac."));
  infer->add_option("--concurrency", flags->concurrency,
                    Help("With --file: most requests at a time. Default 8."));
  infer->add_flag("--json", flags->json, "Print the whole answer as a JSON line.");
}

// Instead of the C++ types by which CLI11 would call the values.
void NameValues(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_type_size() > 0) option->type_name("VALUE");
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
                       "localhost:8001."));
  app->add_option("--deadline", flags->deadline,
                  Help("End a call after this long, e.g. 500ms; 0: never. Default 60s."));
  AddInfer(flags, app);
  AddCommand("models", "List the models that are served.", app);
  CLI::App* stats = AddCommand("stats", "Show counts, durations and padding efficiency.", app);
  stats->add_option("--model", flags->stats.model, "Only this model.");
  stats->add_option("--metrics-address", flags->stats.metrics_address,
                    Help("HOST:PORT of the server's /metrics; none: do not ask. Default: port 8002 "
                         "on the host of --server."));
  CLI::App* health =
      AddCommand("health", "Succeed if the server is ready, for health checks.", app);
  health->add_option("--service", flags->health.service,
                     Help("sluice.readiness (the same as the default, nothing) or "
                          "sluice.liveness."));
  AddBucketCommands(&flags->buckets, app);
  app->require_subcommand(0, 1);
  NameValues(app);
}

absl::Status SetInput(const Flags& flags, InferArguments* infer) {
  const int inputs = flags.text.has_value() + flags.ids.has_value() + !flags.file.empty();
  if (inputs != 1) {
    return absl::InvalidArgumentError("infer needs exactly one of --text, --ids and --file");
  }
  infer->file = flags.file;
  if (flags.text.has_value()) SetText(*flags.text, &infer->request);
  if (!flags.ids.has_value()) return absl::OkStatus();
  absl::StatusOr<std::vector<int32_t>> ids = ParseIds(*flags.ids);
  if (!ids.ok()) return FlagError("--ids", ids.status().message());
  SetIds(*ids, &infer->request);
  return absl::OkStatus();
}

absl::Status ReadInfer(const Flags& flags, InferArguments* infer) {
  if (absl::Status status = SetInput(flags, infer); !status.ok()) return status;
  infer->json = flags.json;
  infer->request.set_model_name(flags.model);
  infer->request.set_model_version(flags.model_version);
  infer->request.set_id(flags.id);
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(flags.outputs, ',', absl::SkipEmpty()))) {
    AddOutput(name, &infer->request);
  }
  for (size_t i = 0; i < Parameters().size(); ++i) {
    if (!flags.parameters[i].has_value()) continue;
    const ParameterInfo& info = Parameters()[i];
    const absl::Status status = SetParameter(info, *flags.parameters[i], &infer->request);
    if (!status.ok()) return FlagError(info.Flag(), status.message());
  }
  return ReadFlag("--concurrency", kConcurrency, flags.concurrency, &infer->concurrency);
}

absl::Status ReadMetricsAddress(const std::string& server, std::string* address) {
  if (*address == "none") {
    address->clear();
    return absl::OkStatus();
  }
  if (address->empty()) *address = absl::StrCat(server.substr(0, server.rfind(':')), ":8002");
  return ReadFlag("--metrics-address", Address{}, *address, address);
}

absl::StatusOr<Arguments> Read(const Flags& flags, const CLI::App& app) {
  const std::string& command = app.get_name();
  Arguments arguments;
  absl::Status status = ReadFlag("--server", Address{}, flags.server, &arguments.server);
  if (status.ok()) {
    status = ReadFlag("--deadline", kDeadline, flags.deadline, &arguments.deadline_us);
  }
  if (command == "infer") {
    arguments.command = Arguments::Command::kInfer;
    if (status.ok()) status = ReadInfer(flags, &arguments.infer);
  } else if (command == "models") {
    arguments.command = Arguments::Command::kModels;
  } else if (command == "health") {
    arguments.command = Arguments::Command::kHealth;
    arguments.health = flags.health;
  } else if (command == "stats") {
    arguments.command = Arguments::Command::kStats;
    arguments.stats = flags.stats;
    if (status.ok())
      status = ReadMetricsAddress(arguments.server, &arguments.stats.metrics_address);
  } else if (status.ok()) {
    status = ReadBucketCommand(flags.buckets, app, &arguments);
  }
  if (!status.ok()) return status;
  return arguments;
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
  if (const char* server = getenv("SLUICE_SERVER"); server != nullptr && *server != '\0') {
    flags.server = server;
  }
  CLI::App app(kDescription, "sluice");
  AddFlags(&flags, &app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Print(app.help());
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (flags.version) return Print(absl::StrCat("sluice ", Version(), "\n"));
  if (app.get_subcommands().empty()) {
    return absl::InvalidArgumentError("name a command, such as infer; see --help");
  }
  return Read(flags, *app.get_subcommands().front());
}

}  // namespace sluice::client
