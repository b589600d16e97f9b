#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/quantile.h"
#include "base/status_macros.h"
#include "loadtest/bench/daemon/benchmarks.h"
#include "loadtest/bench/daemon/process.h"
#include "loadtest/load/run.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {
namespace {

constexpr int32_t kVocab = 33;  // at most the vocabulary of the tiny model

// One of the servers that are compared, with the measurements of its rounds.
struct Contestant {
  Contestant(std::string contestant_name, load::Outcome contestant_outcome)
      : name(std::move(contestant_name)), outcome(contestant_outcome) {}

  const std::string name;
  const load::Outcome outcome;  // of the measured calls
  std::string address;
  std::unique_ptr<ChildProcess> process;
  load::Channels channels;
  std::vector<double> cpu_us_per_call;
  std::vector<double> calls_per_second;

  absl::Status Start(const std::vector<std::string>& argv) {
    SLUICE_ASSIGN_OR_RETURN(ChildProcess started, ChildProcess::Start(argv));
    process = std::make_unique<ChildProcess>(std::move(started));
    SLUICE_ASSIGN_OR_RETURN(channels,
                            load::Connect(address, {}, /*count=*/1, std::chrono::seconds(30)));
    return absl::OkStatus();
  }
};

absl::Status RunRound(const EdgeOptions& options, const load::PayloadPool& pool,
                      Contestant& contestant) {
  constexpr uint32_t kPayload = 0;
  load::RunOptions run;
  run.send_on_refusal = contestant.outcome == load::Outcome::kRejected;
  load::Live live;
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration before, contestant.process->CpuTime());
  const load::PhaseData data = load::RunClosedLoop(
      run, contestant.channels, pool, absl::MakeConstSpan(&kPayload, 1), options.outstanding,
      absl::ToChronoNanoseconds(options.round), /*answers=*/nullptr, &live);
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration after, contestant.process->CpuTime());
  nanoseconds elapsed{0};
  int64_t measured = 0;
  for (const load::CallRecord& call : data.calls) {
    if (call.outcome != contestant.outcome) continue;
    ++measured;
    elapsed = std::max(elapsed, call.done);
  }
  // One call at a time occupies the only place in the queue while the others are refused.
  const auto others = std::ssize(data.calls) - measured;
  if (measured == 0 || others > (run.send_on_refusal ? options.outstanding : 0)) {
    return absl::InternalError(absl::StrCat(
        others, " of ", data.calls.size(), " calls of ", contestant.name,
        " ended otherwise, the first with ",
        data.errors.empty() ? "an answer" : data.errors.begin()->second.first_message));
  }
  const auto calls = static_cast<double>(measured);
  contestant.cpu_us_per_call.push_back(absl::ToDoubleMicroseconds(after - before) / calls);
  contestant.calls_per_second.push_back(calls / Seconds(elapsed));
  return absl::OkStatus();
}

// Keeps the size of an answer.
class SizeOfAnswer final : public load::CallSink {
 public:
  void OnAnswer(int64_t /*call*/, const load::Answer& answer) override {
    if (answer.bytes == nullptr) {
      size_ = absl::InternalError(answer.message);
    } else {
      size_ = answer.bytes->Length();
    }
  }
  absl::StatusOr<size_t> size() const { return size_; }

 private:
  absl::StatusOr<size_t> size_ = absl::UnknownError("no answer");
};

absl::StatusOr<size_t> ResponseBytes(const load::Channels& channels, const grpc::Slice& request) {
  SizeOfAnswer answer;
  // The destructor of the transport waits for the answer.
  const load::SystemTime until = std::chrono::system_clock::now() + std::chrono::seconds(30);
  load::MakeUnaryTransport(channels, until, &answer)->Send(/*call=*/0, request, std::nullopt);
  return answer.size();
}

}  // namespace

absl::StatusOr<nlohmann::json> RunEdge(const EdgeOptions& options) {
  load::PayloadOptions payload;
  payload.model = "tiny";
  payload.vocab = kVocab;
  load::PayloadPool pool(std::move(payload));
  SLUICE_RETURN_IF_ERROR(pool.Assign({{.tokens = options.tokens, .max_tokens = -1}}).status());
  const grpc::Slice& request = pool.payloads().front().bytes;
  using enum load::Outcome;
  Contestant daemon("sluiced", kOk);
  Contestant refusing("refused", kRejected);
  Contestant bare("bare", kOk);
  Contestant other("other", kOk);
  std::vector<Contestant*> all = {&daemon, &refusing, &bare};
  if (!options.other.empty()) all.push_back(&other);
  for (Contestant* each : all) {
    SLUICE_ASSIGN_OR_RETURN(const int port, FreePort());
    each->address = absl::StrCat("127.0.0.1:", port);
  }
  std::vector<std::string> command = {options.sluiced,
                                      "--model",
                                      absl::StrCat("tiny=", options.model),
                                      "--server.metrics.address=",
                                      "--server.admin.address=",
                                      "--server.log.level=warn",
                                      "--server.grpc.address",
                                      daemon.address};
  SLUICE_RETURN_IF_ERROR(daemon.Start(command));
  if (!options.other.empty()) {
    command.front() = options.other;
    command.back() = other.address;
    SLUICE_RETURN_IF_ERROR(other.Start(command));
  }
  // One call waits in the queue for its batch, and all other calls find the queue full.
  command.front() = options.sluiced;
  command.back() = refusing.address;
  command.push_back("--engine.queue.max-requests=1");
  command.push_back("--engine.batch.policy=fifo_packed");
  const absl::Duration held = std::min(options.round, absl::Seconds(10));
  command.push_back(
      absl::StrCat("--engine.batch.max-queue-delay=", absl::ToInt64Microseconds(held), "us"));
  SLUICE_RETURN_IF_ERROR(refusing.Start(command));
  SLUICE_ASSIGN_OR_RETURN(const size_t response_bytes, ResponseBytes(daemon.channels, request));
  SLUICE_RETURN_IF_ERROR(bare.Start({options.self, "bare-server", "--address", bare.address,
                                     "--response-bytes", absl::StrCat(response_bytes)}));

  for (int round = -1; round < options.rounds; ++round) {
    for (Contestant* each : all) {
      SLUICE_RETURN_IF_ERROR(RunRound(options, pool, *each));
      if (round < 0) {  // the first round warms up
        each->cpu_us_per_call.clear();
        each->calls_per_second.clear();
      }
    }
  }
  nlohmann::json report = {{"benchmark", "edge"},
                           {"request_bytes", request.size()},
                           {"response_bytes", response_bytes},
                           {"tokens", options.tokens},
                           {"outstanding", options.outstanding},
                           {"rounds", options.rounds}};
  for (const Contestant* each : all) {
    report[each->name] = {{"cpu_us_per_call", Median(each->cpu_us_per_call)},
                          {"calls_per_second", Median(each->calls_per_second)},
                          {"cpu_us_per_call_rounds", each->cpu_us_per_call}};
  }
  report["cpu_ratio"] = Median(daemon.cpu_us_per_call) / Median(bare.cpu_us_per_call);
  if (!options.other.empty()) {
    report["over_other"] = Median(daemon.cpu_us_per_call) / Median(other.cpu_us_per_call);
  }
  report["refused_ratio"] = Median(refusing.cpu_us_per_call) / Median(daemon.cpu_us_per_call);
  return report;
}

}  // namespace sluice::loadtest
