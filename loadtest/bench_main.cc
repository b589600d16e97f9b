// sluice-bench: the benchmarks that need a running daemon.
#include <algorithm>
#include <fstream>
#include <iostream>

#include "CLI/CLI.hpp"
#include "loadtest/bare_server.h"
#include "loadtest/benchmarks.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

namespace {

int Report(const absl::StatusOr<nlohmann::json>& report, const std::string& out) {
  if (!report.ok()) {
    std::cerr << "sluice-bench: " << report.status().message() << "\n";
    return 1;
  }
  const std::string text = report->dump(2) + "\n";
  std::cout << text;
  if (!out.empty() && !(std::ofstream(out) << text)) {
    std::cerr << "sluice-bench: cannot write " << out << "\n";
    return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app{"Benchmarks of the running daemon. Prints a JSON report."};
  app.require_subcommand(1);
  std::string out;

  EdgeOptions edge;
  edge.self = argv[0];
  double edge_seconds = 3;
  CLI::App* edge_command =
      app.add_subcommand("edge", "server CPU per small request, against a bare gRPC server");
  edge_command->add_option("--sluiced", edge.sluiced, "path of the daemon")->required();
  edge_command->add_option("--model", edge.model, "directory of a tiny model")->required();
  edge_command->add_option("--tokens", edge.tokens, "tokens of a request")->capture_default_str();
  edge_command->add_option("--outstanding", edge.outstanding, "calls in flight")
      ->capture_default_str();
  edge_command->add_option("--rounds", edge.rounds, "interleaved rounds")->capture_default_str();
  edge_command->add_option("--seconds", edge_seconds, "length of a round")->capture_default_str();
  edge_command->add_option("--out", out, "also write the report to this file");

  GenerateOptions generate;
  double generate_seconds = 5;
  CLI::App* generate_command =
      app.add_subcommand("generate", "generated tokens per second by concurrency");
  generate_command->add_option("--sluiced", generate.sluiced, "path of the daemon")->required();
  generate_command->add_option("--model", generate.model, "model directory")->required();
  generate_command->add_option("--prompt", generate.prompt, "text to continue")
      ->capture_default_str();
  generate_command->add_option("--max-tokens", generate.max_tokens, "tokens of an answer")
      ->capture_default_str();
  generate_command->add_option("--concurrency", generate.concurrency, "requests in flight")
      ->delimiter(',')
      ->capture_default_str();
  generate_command->add_option("--rounds", generate.rounds, "rounds")->capture_default_str();
  generate_command->add_option("--seconds", generate_seconds, "length of a round")
      ->capture_default_str();
  generate_command->add_option("--out", out, "also write the report to this file");

  std::string address;
  int response_bytes = 0;
  CLI::App* bare_command = app.add_subcommand("bare-server", "the yardstick of `edge`");
  bare_command->add_option("--address", address, "HOST:PORT")->required();
  bare_command->add_option("--response-bytes", response_bytes, "size of each answer")->required();

  CLI11_PARSE(app, argc, argv);
  if (*edge_command) {
    edge.round = absl::Seconds(edge_seconds);
    return Report(RunEdge(edge), out);
  }
  if (*generate_command) {
    generate.round = absl::Seconds(generate_seconds);
    return Report(RunGenerate(generate), out);
  }
  const absl::Status served = ServeBare(address, response_bytes);
  if (served.ok()) return 0;
  std::cerr << "sluice-bench: " << served.message() << "\n";
  return 1;
}

}  // namespace
}  // namespace sluice::loadtest

int main(int argc, char** argv) { return sluice::loadtest::Main(argc, argv); }
