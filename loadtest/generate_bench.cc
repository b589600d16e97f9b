#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loadtest/benchmarks.h"
#include "loadtest/closed_loop.h"
#include "loadtest/process.h"
#include "loadtest/rounds.h"
#include "nlohmann/json.hpp"
#include "proto/inference.pb.h"

namespace sluice::loadtest {
namespace {

// A prompt to continue, with a seed of its own so that requests differ.
std::string GenerateRequest(const GenerateOptions& options, int64_t seed) {
  inference::ModelInferRequest request;
  request.set_model_name("model");
  auto* input = request.add_inputs();
  input->set_name("text_input");
  input->set_datatype("BYTES");
  input->add_shape(1);
  input->add_shape(1);
  const auto size = static_cast<uint32_t>(options.prompt.size());
  std::string raw(sizeof(size), '\0');
  std::memcpy(raw.data(), &size, sizeof(size));
  request.add_raw_input_contents(raw + options.prompt);
  auto& parameters = *request.mutable_parameters();
  parameters["max_tokens"].set_int64_param(options.max_tokens);
  parameters["temperature"].set_double_param(0.8);
  parameters["top_k"].set_int64_param(40);
  parameters["seed"].set_int64_param(seed);
  return request.SerializeAsString();
}

int64_t GeneratedTokens(const std::string& bytes) {
  inference::ModelInferResponse response;
  if (!response.ParseFromString(bytes)) return 0;
  for (int i = 0; i < response.outputs_size(); ++i) {
    if (response.outputs(i).name() == "sequence_length" &&
        response.raw_output_contents(i).size() == sizeof(int32_t)) {
      int32_t length = 0;
      std::memcpy(&length, response.raw_output_contents(i).data(), sizeof(length));
      return length;
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<nlohmann::json> RunGenerate(const GenerateOptions& options) {
  const absl::StatusOr<int> port = FreePort();
  if (!port.ok()) return port.status();
  const std::string address = absl::StrCat("127.0.0.1:", *port);
  const absl::StatusOr<ChildProcess> daemon = ChildProcess::Start(
      {options.sluiced, "--model", absl::StrCat("model=", options.model), "--server.grpc.address",
       address, "--server.metrics.address", "", "--server.log.level", "warn"});
  if (!daemon.ok()) return daemon.status();
  absl::Status ready = WaitForServer(address, absl::Seconds(60));
  if (!ready.ok()) return ready;

  int64_t seed = 0;
  std::vector<std::vector<double>> rates(options.concurrency.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < options.concurrency.size(); ++i) {
      ClosedLoopOptions loop;
      loop.address = address;
      loop.method = "/inference.GRPCInferenceService/ModelInfer";
      loop.outstanding = options.concurrency[i];
      loop.duration = options.round;
      int64_t tokens = 0;
      const absl::StatusOr<ClosedLoopResult> result = RunClosedLoop(
          loop, [&](int64_t) { return GenerateRequest(options, ++seed); },
          [&](const std::string& response) { tokens += GeneratedTokens(response); });
      if (!result.ok()) return result.status();
      rates[i].push_back(static_cast<double>(tokens) / absl::ToDoubleSeconds(result->elapsed));
    }
  }
  nlohmann::json report = {
      {"benchmark", "generate"}, {"max_tokens", options.max_tokens}, {"rounds", options.rounds}};
  for (size_t i = 0; i < options.concurrency.size(); ++i) {
    report["tokens_per_second"][absl::StrCat(options.concurrency[i])] = Median(rates[i]);
  }
  return report;
}

}  // namespace sluice::loadtest
