#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loadtest/bench/daemon/benchmarks.h"
#include "loadtest/bench/daemon/closed_loop.h"
#include "loadtest/bench/daemon/process.h"
#include "loadtest/bench/daemon/rounds.h"
#include "nlohmann/json.hpp"
#include "proto/inference.pb.h"

namespace sluice::loadtest {
namespace {

constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";

std::string SmallRequest(int tokens) {
  inference::ModelInferRequest request;
  request.set_model_name("tiny");
  auto* input = request.add_inputs();
  input->set_name("input_ids");
  input->set_datatype("INT32");
  input->add_shape(1);
  input->add_shape(tokens);
  std::string raw(static_cast<size_t>(tokens) * 4, '\0');
  for (int i = 0; i < tokens; ++i) raw[4 * i] = static_cast<char>(1 + i % 32);
  request.add_raw_input_contents(std::move(raw));
  return request.SerializeAsString();
}

// One of the two servers compared, with what its rounds measured.
struct Contestant {
  explicit Contestant(std::string contestant_name) : name(std::move(contestant_name)) {}

  std::string name;
  std::string address;
  std::unique_ptr<ChildProcess> process;
  std::vector<double> cpu_us_per_call;
  std::vector<double> calls_per_second;

  absl::Status Start(const std::vector<std::string>& argv) {
    absl::StatusOr<ChildProcess> started = ChildProcess::Start(argv);
    if (!started.ok()) return started.status();
    process = std::make_unique<ChildProcess>(*std::move(started));
    return WaitForServer(address, absl::Seconds(30));
  }
};

absl::Status RunRound(const EdgeOptions& options, const std::string& request,
                      Contestant& contestant) {
  ClosedLoopOptions loop;
  loop.address = contestant.address;
  loop.method = kInfer;
  loop.outstanding = options.outstanding;
  loop.duration = options.round;
  const absl::StatusOr<absl::Duration> before = contestant.process->CpuTime();
  const absl::StatusOr<ClosedLoopResult> result = RunClosedLoop(
      loop, [&](int64_t) { return request; }, [](const std::string&) {});
  const absl::StatusOr<absl::Duration> after = contestant.process->CpuTime();
  for (const absl::Status& status : {before.status(), result.status(), after.status()}) {
    if (!status.ok()) return status;
  }
  const auto calls = static_cast<double>(result->calls);
  contestant.cpu_us_per_call.push_back(absl::ToDoubleMicroseconds(*after - *before) / calls);
  contestant.calls_per_second.push_back(calls / absl::ToDoubleSeconds(result->elapsed));
  return absl::OkStatus();
}

absl::StatusOr<size_t> ResponseBytes(const std::string& address, const std::string& request) {
  ClosedLoopOptions loop;
  loop.address = address;
  loop.method = kInfer;
  loop.outstanding = 1;
  loop.duration = absl::ZeroDuration();
  size_t bytes = 0;
  const auto result = RunClosedLoop(
      loop, [&](int64_t) { return request; },
      [&](const std::string& response) { bytes = response.size(); });
  if (!result.ok()) return result.status();
  return bytes;
}

}  // namespace

absl::StatusOr<nlohmann::json> RunEdge(const EdgeOptions& options) {
  const std::string request = SmallRequest(options.tokens);
  Contestant daemon("sluiced");
  Contestant bare("bare");
  for (Contestant* each : {&daemon, &bare}) {
    const absl::StatusOr<int> port = FreePort();
    if (!port.ok()) return port.status();
    each->address = absl::StrCat("127.0.0.1:", *port);
  }
  absl::Status status =
      daemon.Start({options.sluiced, "--model", absl::StrCat("tiny=", options.model),
                    "--server.grpc.address", daemon.address, "--server.metrics.address", "",
                    "--server.admin.address", "", "--server.log.level", "warn"});
  if (!status.ok()) return status;
  const absl::StatusOr<size_t> response_bytes = ResponseBytes(daemon.address, request);
  if (!response_bytes.ok()) return response_bytes.status();
  status = bare.Start({options.self, "bare-server", "--address", bare.address, "--response-bytes",
                       absl::StrCat(*response_bytes)});
  if (!status.ok()) return status;

  for (int round = -1; round < options.rounds; ++round) {
    for (Contestant* each : {&daemon, &bare}) {
      status = RunRound(options, request, *each);
      if (!status.ok()) return status;
      if (round < 0) {  // the first round warms up
        each->cpu_us_per_call.clear();
        each->calls_per_second.clear();
      }
    }
  }
  nlohmann::json report = {{"benchmark", "edge"},
                           {"request_bytes", request.size()},
                           {"response_bytes", *response_bytes},
                           {"tokens", options.tokens},
                           {"outstanding", options.outstanding},
                           {"rounds", options.rounds}};
  for (const Contestant* each : {&daemon, &bare}) {
    report[each->name] = {{"cpu_us_per_call", Median(each->cpu_us_per_call)},
                          {"calls_per_second", Median(each->calls_per_second)},
                          {"cpu_us_per_call_rounds", each->cpu_us_per_call}};
  }
  report["cpu_ratio"] = Median(daemon.cpu_us_per_call) / Median(bare.cpu_us_per_call);
  return report;
}

}  // namespace sluice::loadtest
