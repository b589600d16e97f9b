// sluice-bench runs the benchmarks that need a running daemon.
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "base/write_file.h"
#include "loadtest/bench/daemon/bare_server.h"
#include "loadtest/bench/daemon/benchmarks.h"
#include "loadtest/parse_flags.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

namespace {

int Report(const absl::StatusOr<nlohmann::json>& report, const std::string& out) {
  if (!report.ok()) {
    std::cerr << "sluice-bench: " << report.status().message() << "\n";
    return 1;
  }
  const std::string text = report->dump(2) + "\n";
  std::cout << text;
  const absl::Status written = out.empty() ? absl::OkStatus() : WriteFile(out, text);
  if (written.ok()) return 0;
  std::cerr << "sluice-bench: " << written.message() << "\n";
  return 1;
}

// Returns the path of this program, however it was started.
std::filesystem::path Self() { return std::filesystem::read_symlink("/proc/self/exe"); }

// Returns the daemon of the build that has this program, or the one next to the program, or else
// the name, which is searched in PATH.
std::string DefaultDaemon() {
  const std::filesystem::path folder = Self().parent_path();
  for (const char* const place : {"../../../server/sluiced", "sluiced"}) {
    const std::filesystem::path daemon = (folder / place).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::is_regular_file(daemon, ignored)) return daemon.string();
  }
  return "sluiced";
}

void AddDaemon(std::string* daemon, CLI::App* command) {
  *daemon = DefaultDaemon();
  command->add_option("--sluiced", *daemon, "path of the daemon")->capture_default_str();
}

// Each function adds a command with its flags. A chosen command writes its report to `out`.
struct Edge {
  EdgeOptions options;
  double seconds = 3;

  CLI::App* AddTo(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("edge", "server CPU per small request, compared with a bare server");
    AddDaemon(&options.sluiced, command);
    command->add_option("--other", options.other, "path of another daemon to compare with");
    command->add_option("--model", options.model, "directory of a tiny model")->required();
    command->add_option("--tokens", options.tokens, "tokens of a request")->capture_default_str();
    command->add_option("--outstanding", options.outstanding, "calls in flight")
        ->capture_default_str();
    command->add_option("--rounds", options.rounds, "interleaved rounds")->capture_default_str();
    command->add_option("--seconds", seconds, "length of a round")->capture_default_str();
    return command;
  }

  absl::StatusOr<nlohmann::json> Run() {
    options.round = absl::Seconds(seconds);
    return RunEdge(options);
  }
};

struct Generate {
  GenerateOptions options;
  double seconds = 8;

  CLI::App* AddTo(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "generate", "streamed answers: continuous and static batches, and by concurrency");
    AddDaemon(&options.sluiced, command);
    command->add_option("--model", options.model, "model directory, 248 positions or more")
        ->required();
    command->add_option("--outstanding", options.outstanding, "requests in flight, compared")
        ->capture_default_str();
    command->add_option("--concurrency", options.concurrency, "requests in flight, by themselves")
        ->delimiter(',')
        ->capture_default_str();
    command->add_option("--rounds", options.rounds, "interleaved rounds")->capture_default_str();
    command->add_option("--seconds", seconds, "length of a phase")->capture_default_str();
    command->add_option("--seed", options.seed, "of lengths, arrivals and contents")
        ->capture_default_str();
    command->add_option("--table", options.table, "also write the figures as Markdown");
    return command;
  }

  absl::StatusOr<nlohmann::json> Run() {
    options.phase = absl::Seconds(seconds);
    return RunGenerate(options);
  }
};

struct Buckets {
  BucketsOptions options;
  double seconds = 4;
  std::string strategies;

  CLI::App* AddTo(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "buckets", "padded and packed policies and ladders, on the lengths of a trace");
    AddDaemon(&options.sluiced, command);
    command->add_option("--model", options.model, "model directory")->required();
    command
        ->add_option("--trace,--shapes", options.trace,
                     "lengths: CSV with arrival_s and input_tokens, or JSON lines with timestamp "
                     "and input_length")
        ->required();
    command->add_option("--strategies", strategies,
                        "all: every strategy of the ladder, packed, instead of the policies");
    command->add_option("--cap", options.cap, "traced tokens that become the model's positions")
        ->capture_default_str();
    command->add_option("--outstanding", options.outstanding, "calls in flight at the peak")
        ->capture_default_str();
    command->add_option("--rounds", options.rounds, "interleaved rounds")->capture_default_str();
    command->add_option("--seconds", seconds, "length of a phase")->capture_default_str();
    command->add_option("--seed", options.seed, "of arrivals and contents")->capture_default_str();
    command->add_option("--table", options.table, "also write the figures as Markdown");
    return command;
  }

  absl::StatusOr<nlohmann::json> Run() {
    options.phase = absl::Seconds(seconds);
    if (!strategies.empty() && strategies != "all") {
      return absl::InvalidArgumentError(
          absl::StrCat("--strategies: expected all, got ", strategies));
    }
    options.strategies = !strategies.empty();
    return RunBuckets(options);
  }
};

int Main(int argc, char** argv) {
  CLI::App app{"Benchmarks of the running daemon. Prints a JSON report."};
  app.set_version_flag("--version", absl::StrCat("sluice-bench ", Version()));
  app.require_subcommand(1);
  Edge edge;
  edge.options.self = Self().string();
  Generate generate;
  Buckets buckets;
  const CLI::App* edge_command = edge.AddTo(app);
  const CLI::App* generate_command = generate.AddTo(app);
  const CLI::App* buckets_command = buckets.AddTo(app);
  std::string out;
  for (CLI::App* command : app.get_subcommands({})) {
    command->add_option("--out", out, "also write the report to this file");
  }

  std::string address;
  int response_bytes = 0;
  CLI::App* bare_command = app.add_subcommand("bare-server", "the bare server of `edge`");
  bare_command->add_option("--address", address, "HOST:PORT")->required();
  bare_command->add_option("--response-bytes", response_bytes, "size of each answer")->required();

  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  if (*edge_command) return Report(edge.Run(), out);
  if (*generate_command) return Report(generate.Run(), out);
  if (*buckets_command) return Report(buckets.Run(), out);
  const absl::Status served = ServeBare(address, response_bytes);
  if (served.ok()) return 0;
  std::cerr << "sluice-bench: " << served.message() << "\n";
  return 1;
}

}  // namespace
}  // namespace sluice::loadtest

int main(int argc, char** argv) { return sluice::loadtest::Main(argc, argv); }
