// The main program of sluiced. It assembles the daemon; no other file depends on every part.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/fault_injection.h"
#include "base/mapped_files.h"
#include "base/out_of_memory.h"
#include "base/periodic_thread.h"
#include "base/resident_memory.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "base/work_queue.h"
#include "config/command_line.h"
#include "engine/engine.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"
#include "server/calls/reply_thread.h"
#include "server/common/callback_times.h"
#include "server/common/log.h"
#include "server/common/memory_limits.h"
#include "server/daemon/cgroup_follower.h"
#include "server/daemon/check.h"
#include "server/daemon/device.h"
#include "server/daemon/engine_health.h"
#include "server/daemon/lifecycle.h"
#include "server/daemon/reloader.h"
#include "server/daemon/server.h"
#include "server/daemon/service_manager.h"
#include "server/daemon/tuning.h"
#include "server/models/model_target.h"
#include "server/observe/access_log.h"
#include "server/observe/engine_log.h"
#include "server/observe/metrics.h"
#include "server/observe/observers.h"
#include "server/observe/recent_activity.h"
#include "server/observe/statistics.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kUpkeepInterval{10};
// How long the counts of an unloaded model are still shown.
constexpr std::chrono::minutes kKeepUnloaded{10};

// Returns the longest time from the signal to the end of the process: the drain, then the last
// answers and the destruction of the other parts.
nanoseconds LongestEnd(const LifecycleOptions& lifecycle) {
  return std::chrono::microseconds(lifecycle.drain_delay_us + lifecycle.drain_timeout_us) +
         std::chrono::seconds(5);
}

absl::Status ReadFaults() {
  const char* const faults = std::getenv(kFaultsVariable);
  return faults == nullptr ? absl::OkStatus() : SetFaults(faults);
}

void LogDevice(const ChosenBackend& chosen, Log& log) {
  const BackendInfo& info = chosen.backend->info();
  for (const std::string& warning : chosen.warnings) log.Warn(warning, {{"device", info.device}});
  log.Info("device", {{"device", info.device}, {"profile", info.profile}});
  for (const KernelInfo& kernel : chosen.kernels) {
    log.Debug("kernel", {{"name", kernel.name},
                         {"registers", kernel.registers},
                         {"local_bytes", kernel.local_bytes},
                         {"shared_bytes", kernel.shared_bytes},
                         {"max_threads", kernel.max_threads},
                         {"blocks_per_processor", kernel.blocks_per_processor}});
  }
}

// Logs the slowest callback of gRPC since the previous call, if it exceeded CallbackTimes::kBound.
void LogSlowCallback(Log& log) {
  const auto slowest = CallbackTimes::OfProcess().TakeSlowest();
  if (!slowest) return;
  log.Warn("slow callback", {{"method", slowest->method},
                             {"event", NameOf(slowest->event)},
                             {"seconds", Seconds(slowest->took)}});
}

// Adds the memory limits to an error about memory.
absl::Status WithLimits(const absl::Status& status, const MemoryLimits& limits) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(),
      ", or lower one of the options listed here. The limits without models: ", limits.Text()));
}

// Writes why the daemon could not start, as a record if the log has the format json.
void PrintFailure(LogOptions options, const absl::Status& status) {
  const std::string reason(status.message());
  if (options.format == LogOptions::Format::kJson) {
    options.level = "error";
    if (const auto log = Log::Create(options); log.ok()) {
      return (*log)->Error("sluiced could not start", {{"reason", reason}});
    }
  }
  std::fprintf(stderr, "sluiced: %s\n", reason.c_str());
}

// Reports the ports on standard output, or in the log if it has the format json.
void ReportStart(const Server& server, bool ready, const std::string& version,
                 LogOptions::Format format, Log& log) {
  const char* const state = ready ? "ready" : "not ready";
  if (format == LogOptions::Format::kJson) {
    return log.Info(state, {{"version", version},
                            {"grpc_port", server.grpc_port()},
                            {"http_port", server.http_port()}});
  }
  const std::string http =
      server.http_port() == 0 ? "no HTTP" : absl::StrCat("HTTP on port ", server.http_port());
  std::printf("sluiced %s %s: gRPC on port %d, %s\n", version.c_str(), state, server.grpc_port(),
              http.c_str());
  std::fflush(stdout);
}

// Prints the result of --check and returns the exit status.
int PrintCheck(const ConfigCheck& check) {
  for (const absl::Status& error : check.errors) {
    std::fprintf(stderr, "sluiced: %s\n", std::string(error.message()).c_str());
  }
  if (!check.errors.empty()) return 2;
  std::printf("The configuration is valid; models: %lld.\n",
              static_cast<long long>(check.models.models));
  if (check.free_bytes) {
    std::printf(
        "An estimate leaves %.1f MiB for activations, KV pages and plans. Only the start measures "
        "them and can still find too little memory (server.memory.limit_bytes).\n",
        static_cast<double>(*check.free_bytes) / (1 << 20));
  }
  return 0;
}

// Runs the daemon. The parts are destroyed in reverse order, as their contracts require: the
// server, the engine, then the parts that the engine uses. `read` returns the configuration on
// disk.
absl::Status Run(const Config& config, const Reloader::Read& read) {
  SLUICE_RETURN_IF_ERROR(CheckFiles(config));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Log> log, Log::Create(config.server.log));
  log->CaptureGrpc();
  bool drained = false;
  const absl::Cleanup last_word = [&] {
    if (drained) log->Info("exits");
  };
  if (FaultsOn()) {
    log->Warn("TEST FAULTS ARE ON: this daemon fails on purpose", {{"variable", kFaultsVariable}});
  }
  if (const char* const cap = std::getenv(kernels::kInstructionCapVariable);
      cap != nullptr && *cap != '\0') {
    log->Warn("A TEST CAP IS ON: this daemon does not use all instructions of the processor",
              {{"variable", kernels::kInstructionCapVariable}, {"value", cap}});
  }
  const ServerOptions server_options = WithMemoryShares(config.server);
  if (const std::string warning = MemoryLimitWarning(config.server.memory); !warning.empty()) {
    log->Warn(warning);
  }
  const int64_t configured_models = CountModels(config.models, config.model_repository);
  EngineOptions engine_options =
      WithMemoryShares(config.engine, server_options.memory.limit_bytes, configured_models);
  // If callers are not identified, all of them count as one.
  if (config.server.auth.callers_file.empty()) engine_options.kv.private_prefixes = false;
  const Engine* serving = nullptr;
  const int cpus_at_start = kernels::AvailableCpus();
  std::atomic<int64_t> memory_limit = server_options.memory.limit_bytes;
  const auto limits_without_models = [&](int64_t process_bytes) {
    const int64_t served = serving == nullptr ? 0 : serving->MostModels();
    return ComputeMemoryLimits(server_options, engine_options.queue.max_bytes,
                               std::max<int64_t>({configured_models, served, 1}), process_bytes);
  };
  const int64_t bytes_at_start = ResidentBytes();
  const auto free_memory = [&] {
    return memory_limit - limits_without_models(ResidentBytes()).sum();
  };
  SLUICE_ASSIGN_OR_RETURN(
      const ChosenBackend chosen,
      MakeBackend(config.device, config.cpu, config.cuda, config.engine.attention, free_memory));
  Backend* const backend = chosen.backend.get();
  LogDevice(chosen, *log);

  const std::string version(Version());
  Metrics metrics(backend->info().device, version);
  Statistics statistics;
  AccessLog access(config.server.log.access_sample, log.get());
  EngineLog engine_log(log.get());
  RecentActivity activity(Clock::Real());
  const auto grace = std::chrono::microseconds(config.engine.watchdog.grace_us);
  EngineHealth engine_health(config.engine.watchdog.failed_steps, log.get(),
                             [grace] { ExitAfter(grace); });
  Observers observers({&metrics, &statistics, &activity, &access, &engine_log, &engine_health});
  ReplyThreads replies(PreparationThreads());
  const std::unique_ptr<Engine> engine =
      Engine::Create(engine_options, backend, Clock::Real(), &observers);
  serving = engine.get();

  std::optional<Reloader> reloader;  // outlives the server, whose Reload method uses it
  // One waiting reload handles all further SIGHUPs.
  std::optional<JobQueue> hangups(std::in_place, /*max_waiting=*/1);
  const Reload reload = [&reloader] { return reloader->Reload(); };
  // A SIGHUP during the start leads to a reload after it.
  std::atomic<bool> loaded = false, hung_up = false;
  const auto handle_hangup = [&] {
    if (!loaded || !hung_up.exchange(false)) return;
    hangups->Post([&] { reload().status().IgnoreError(); });
  };
  Termination termination([&] {
    hung_up = true;
    handle_hangup();
  });
  const auto interrupted = [&termination] {
    return termination.requested()
               ? absl::CancelledError("the process received a termination signal")
               : absl::OkStatus();
  };
  SLUICE_ASSIGN_OR_RETURN(
      std::unique_ptr<Server> server,
      Server::Start(server_options, version, engine_options,
                    {engine.get(), Clock::Real(), &metrics, &statistics, &activity, &replies,
                     log.get(), &access, ResidentBytes, interrupted}));
  engine_health.Attach(&server->health());
  const absl::Cleanup detach = [&engine_health] { engine_health.Attach(nullptr); };
  // A reload in progress uses the server. After the signal that ends the daemon, no SIGHUP counts.
  const absl::Cleanup end_reloads = [&hangups] { hangups.reset(); };
  reloader.emplace(config, read, server.get(), &metrics, log.get());
  const absl::Status loaded_models = reloader->LoadModels();
  if (termination.requested()) {
    log->Info("the daemon ended while it was loading models", {{"signal", termination.Await()}});
    return absl::OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(WithLimits(loaded_models, limits_without_models(bytes_at_start)));
  SLUICE_RETURN_IF_ERROR(server->memory_limits().Check());
  log->Info("memory limits", {{"limits", server->memory_limits().Text()}});
  const auto is_served = [&engine](std::string_view name, int64_t number) {
    return std::ranges::any_of(engine->Models(), [&](const std::shared_ptr<const Model>& model) {
      return model->name == name && (number == 0 || model->version == number);
    });
  };
  const PeriodicThread upkeep(Clock::Real(), kUpkeepInterval, [&] {
    TrimHeaps();
    LogSlowCallback(*log);
    const MonoTime now = Clock::Real()->Now();
    metrics.Retire(is_served, now, kKeepUnloaded);
    statistics.Retire(is_served, now, kKeepUnloaded);
    activity.Retire(is_served, now, kKeepUnloaded);
  });
  CgroupFollower follower(config.server.memory,
                          {.cpus = cpus_at_start,
                           .bytes = server_options.memory.limit_bytes,
                           .set_cpus = [&](int cpus) { return backend->FollowCpus(cpus); },
                           .set_memory =
                               [&](int64_t bytes) {
                                 memory_limit = bytes;
                                 server->SetMemoryLimit(bytes);
                               },
                           .log = log.get()});
  const PeriodicThread looks(Clock::Real(), kCgroupInterval, [&] { follower.Look(); });
  server->SetReload(reload);
  server->SetReady();
  const bool ready = server->health().ready();
  if (!ready) {
    log->Warn(
        "no model is served, so the daemon is not ready; load one with `sluice load NAME`, or "
        "set server.lifecycle.ready_without_models if this is intended",
        {{"model_repository", config.model_repository}});
  }
  ReportStart(*server, ready, version, config.server.log.format, *log);
  NotifyServiceManager("READY=1");
  loaded = true;
  handle_hangup();

  const int signal = termination.Await();
  log->Info("draining", {{"signal", signal}});
  NotifyServiceManager("STOPPING=1");
  ExitAfter(LongestEnd(server->lifecycle()));
  server->Drain();
  log->Info("drained");
  drained = true;
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::TuneProcess();
  sluice::BlockSignals();
  sluice::NameMappingsOnFault();
  const auto read = [argc, argv] {
    return sluice::ParseCommandLine(argc, argv, sluice::EnvironmentOf(environ));
  };
  absl::StatusOr<sluice::CommandLine> command = read();
  if (!command.ok()) {
    std::fprintf(stderr, "sluiced: %s\n", std::string(command.status().message()).c_str());
    return 2;
  }
  if (command->action == sluice::CommandLine::Action::kPrint) {
    std::fputs(command->text.c_str(), stdout);
    return 0;
  }
  if (command->action == sluice::CommandLine::Action::kCheck) {
    return sluice::PrintCheck(sluice::CheckConfig(command->config));
  }
  const auto read_config = [read]() -> absl::StatusOr<sluice::Config> {
    SLUICE_ASSIGN_OR_RETURN(sluice::CommandLine line, read());
    return std::move(line.config);
  };
  absl::Status status = sluice::ReadFaults();
  if (status.ok()) {
    status = sluice::OrOutOfMemory([&] { return sluice::Run(command->config, read_config); });
  }
  if (!status.ok()) {
    sluice::PrintFailure(command->config.server.log, status);
    return 1;
  }
  return 0;
}
