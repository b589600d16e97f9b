// The composition root of sluiced: the only place that knows every part.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "config/command_line.h"
#include "config/option.h"
#include "config/version.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "engine/fault.h"
#include "server/access_log.h"
#include "server/engine_health.h"
#include "server/engine_log.h"
#include "server/lifecycle.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/observers.h"
#include "server/recent_activity.h"
#include "server/reply_thread.h"
#include "server/server.h"
#include "server/statistics.h"

namespace sluice {
namespace {

absl::Status ServeModels(const std::vector<ModelSpec>& specs, Engine* engine, Log* log) {
  if (specs.empty()) return absl::InvalidArgumentError("no model: give --model NAME=DIR");
  for (const ModelSpec& spec : specs) {
    absl::StatusOr<std::shared_ptr<const Model>> model =
        LoadModel(spec.name, spec.version, spec.path);
    absl::Status status = model.ok() ? engine->Serve(*model) : model.status();
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("model ", spec.name, " from ", spec.path,
                                                      ": ", status.message()));
    }
    log->Info("model ready", {{"model", spec.name}, {"version", spec.version}});
  }
  return absl::OkStatus();
}

EngineTraits TraitsOf(const Config& config) {
  return {.policy = FindOption("engine.batch.policy")->format(config),
          .strategy = FindOption("engine.ladder.strategy")->format(config),
          .memory_limit_bytes = config.engine.ladder.memory_limit_bytes,
          .max_queue_delay_us = config.engine.batch.max_queue_delay_us};
}

// From the signal: after the drain come the last answers and what else goes with the process.
nanoseconds LongestEnd(const LifecycleOptions& lifecycle) {
  return std::chrono::microseconds(lifecycle.drain_delay_us + lifecycle.drain_timeout_us) +
         std::chrono::seconds(5);
}

absl::Status ReadFaults() {
  const char* const faults = std::getenv(kFaultsVariable);
  return faults == nullptr ? absl::OkStatus() : SetFaults(faults);
}

// Destruction in reverse order is what the contracts ask for: server, engine, then what they use.
absl::Status Run(const Config& config) {
  absl::StatusOr<std::unique_ptr<Log>> log = Log::Create(config.server.log);
  if (!log.ok()) return log.status();
  (*log)->CaptureGrpc();
  if (FaultsOn()) {
    (*log)->Warn("TEST FAULTS ARE ON: this daemon fails on purpose",
                 {{"variable", kFaultsVariable}});
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCpuBackend(config.cpu);
  if (!backend.ok()) return backend.status();

  const std::string version(Version());
  Metrics metrics((*backend)->info().device, version);
  Statistics statistics;
  AccessLog access(config.server.log.access_sample, log->get());
  EngineLog engine_log(log->get());
  RecentActivity activity(Clock::Real());
  const auto grace = std::chrono::microseconds(config.engine.watchdog.grace_us);
  EngineHealth engine_health(config.engine.watchdog.failed_steps, log->get(),
                             [grace] { ExitAfter(grace); });
  Observers observers({&metrics, &statistics, &activity, &access, &engine_log, &engine_health});
  ReplyThread replies;
  const std::unique_ptr<Engine> engine =
      Engine::Create(config.engine, backend->get(), Clock::Real(), &observers);

  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(config.server, version, TraitsOf(config),
                    {engine.get(), Clock::Real(), &metrics, &statistics, &activity, &replies,
                     log->get(), &engine_health});
  if (!server.ok()) return server.status();
  if (absl::Status status = ServeModels(config.models, engine.get(), log->get()); !status.ok()) {
    return status;
  }
  (*server)->SetReady();
  std::printf("sluiced %s ready: gRPC on port %d, HTTP on port %d\n", version.c_str(),
              (*server)->grpc_port(), (*server)->http_port());
  std::fflush(stdout);

  const int signal = WaitForTermination();
  (*log)->Info("draining", {{"signal", signal}});
  ExitAfter(LongestEnd(config.server.lifecycle));
  (*server)->Drain();
  (*log)->Info("drained");
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::BlockTermination();
  absl::StatusOr<sluice::CommandLine> command = sluice::ParseCommandLine(
      argc, argv, [](const char* name) -> const char* { return std::getenv(name); });
  if (!command.ok()) {
    std::fprintf(stderr, "sluiced: %s\n", std::string(command.status().message()).c_str());
    return 2;
  }
  if (command->action == sluice::CommandLine::Action::kPrint) {
    std::fputs(command->text.c_str(), stdout);
    return 0;
  }
  absl::Status status = sluice::ReadFaults();
  if (status.ok()) status = sluice::Run(command->config);
  if (!status.ok()) {
    std::fprintf(stderr, "sluiced: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
