#include "loadtest/load/session.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/read_file.h"
#include "base/status_macros.h"
#include "base/write_file.h"
#include "loadtest/load/commit.h"
#include "loadtest/load/peak.h"
#include "loadtest/load/progress.h"
#include "loadtest/load/report_json.h"
#include "proto/inference.grpc.pb.h"

namespace sluice::load {
namespace {

using nlohmann::json;

// The load of one phase: a rate, or a number of calls in flight.
struct Load {
  double rate = 0;
  int concurrency = 0;

  std::string Title() const {
    if (concurrency > 0) return absl::StrFormat("closed loop, %d in flight", concurrency);
    return rate > 0 ? absl::StrFormat("%g/s", rate) : "trace";
  }
};

std::string HostPort(absl::string_view url) {
  absl::ConsumePrefix(&url, "http://");
  return std::string(url.substr(0, url.find('/')));
}

class Session {
 public:
  Session(const SessionOptions& options, std::ostream* out, bool terminal)
      : options_(options), out_(out), terminal_(terminal), pool_(options.payload) {}

  absl::Status Prepare();
  // Runs all phases.
  absl::Status Run();
  // Returns the report of the phases that have ended.
  json Report() const;

 private:
  absl::Status ReadFiles();
  // Checks that every phase has requests and that the answers can be written.
  absl::Status CheckOptions() const;
  absl::Status CheckMetrics() const;
  absl::Status FindPeak();
  std::vector<Load> Loads() const;
  nanoseconds Length() const { return options_.warm_up + options_.duration; }
  absl::StatusOr<std::vector<Arrival>> Schedule(const Load& load) const;
  // Runs a phase, adds it to the report and returns whether it met the objective.
  absl::StatusOr<bool> RunPhase(const Load& load);
  // Runs a phase. If metrics are requested, starts `watch` right before the first request.
  absl::StatusOr<PhaseData> Measure(const Load& load, std::unique_ptr<MetricsWatch>& watch);
  // Adds the daemon's readings to the phase. Returns its counts, or the error of the readings.
  absl::StatusOr<Reconciliation> AddServer(MetricsWatch& watch, const PhaseData& data,
                                           json& phase) const;
  void Say(const Load& load, const json& phase) const;
  absl::Status WriteAnswers() const;

  const SessionOptions& options_;
  std::ostream* const out_;
  const bool terminal_;
  const absl::Time started_ = absl::Now();
  std::vector<TraceRow> trace_;
  Channels channels_;
  PayloadPool pool_;
  std::unique_ptr<AnswerBook> answers_;
  json server_;
  json phases_ = json::array();
  json peak_;
};

absl::Status Session::Prepare() {
  SLUICE_RETURN_IF_ERROR(ReadFiles());
  SLUICE_RETURN_IF_ERROR(CheckOptions());
  SLUICE_ASSIGN_OR_RETURN(channels_, Connect(options_.address, options_.connection,
                                             options_.channels, std::chrono::seconds(10)));
  SLUICE_RETURN_IF_ERROR(CheckMetrics());
  // The report names the server. A server without this method is measured without its name.
  const auto stub = inference::GRPCInferenceService::NewStub(channels_[0]);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  inference::ServerMetadataResponse metadata;
  server_ = {{"address", options_.address}};
  if (stub->ServerMetadata(&context, {}, &metadata).ok()) {
    server_["name"] = metadata.name();
    server_["version"] = metadata.version();
  }
  return absl::OkStatus();
}

absl::Status Session::ReadFiles() {
  if (!options_.trace_path.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(options_.trace_path));
    absl::StatusOr<std::vector<TraceRow>> trace = ParseTrace(text);
    if (!trace.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.trace_path, ": ", trace.status().message()));
    }
    trace_ = *std::move(trace);
  }
  if (!options_.check_path.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(options_.check_path));
    absl::StatusOr<std::unique_ptr<AnswerBook>> book = AnswerBook::Parse(text);
    if (!book.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.check_path, ": ", book.status().message()));
    }
    answers_ = *std::move(book);
  } else if (!options_.record_path.empty()) {
    answers_ = std::make_unique<AnswerBook>();
  }
  return absl::OkStatus();
}

absl::Status Session::CheckOptions() const {
  for (const Load& load : Loads()) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Arrival> arrivals, Schedule(load));
    if (arrivals.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no request arrives in the phase ", load.Title(), "; raise the rate or the duration"));
    }
  }
  return options_.record_path.empty() ? absl::OkStatus() : CheckWritable(options_.record_path);
}

absl::Status Session::CheckMetrics() const {
  if (options_.metrics_url.empty()) return absl::OkStatus();
  const absl::Status status =
      ReadMetrics(HostPort(options_.metrics_url), options_.payload.model).status();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("metrics: ", status.message()));
}

// Returns the loads of the phases. A search has only its first.
std::vector<Load> Session::Loads() const {
  if (options_.find_peak) return {{options_.rates.empty() ? 16 : options_.rates[0], 0}};
  std::vector<Load> loads;
  loads.reserve(options_.rates.size() + options_.concurrencies.size());
  for (double rate : options_.rates) loads.push_back({rate, 0});
  for (int concurrency : options_.concurrencies) loads.push_back({0, concurrency});
  if (loads.empty()) loads.emplace_back();
  return loads;
}

absl::Status Session::Run() {
  absl::Status status;
  if (options_.find_peak) {
    status = FindPeak();
  } else {
    for (const Load& load : Loads()) {
      status = RunPhase(load).status();
      if (!status.ok()) break;
    }
  }
  if (!phases_.empty()) status.Update(WriteAnswers());
  return status;
}

absl::Status Session::FindPeak() {
  PeakSearch search(Loads().front().rate, options_.peak_tolerance);
  while (!search.done()) {
    const Load load{search.next_rate(), 0};
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Arrival> arrivals, Schedule(load));
    if (arrivals.empty()) break;  // no rate meets the objective
    SLUICE_ASSIGN_OR_RETURN(const bool met, RunPhase(load));
    search.Report(met);
  }
  peak_ = {{"rate_per_s", search.peak()}, {"tolerance", options_.peak_tolerance}};
  if (out_ != nullptr) {
    *out_ << absl::StrFormat("peak: %g/s within the objective of %g ms at %g %%\n", search.peak(),
                             1e3 * Seconds(options_.objective.latency),
                             options_.objective.percentile);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Arrival>> Session::Schedule(const Load& load) const {
  // A closed loop takes its lengths from a schedule too, and ignores the times.
  return load.concurrency > 0
             ? MakeSchedule(options_.workload, trace_, 10'000, std::chrono::seconds(1))
             : MakeSchedule(options_.workload, trace_, load.rate, Length());
}

absl::StatusOr<PhaseData> Session::Measure(const Load& load, std::unique_ptr<MetricsWatch>& watch) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Arrival> arrivals, Schedule(load));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<uint32_t> payloads, pool_.Assign(arrivals));
  if (answers_) answers_->Prepare(pool_.payloads());
  if (!options_.metrics_url.empty()) {
    watch = std::make_unique<MetricsWatch>(HostPort(options_.metrics_url), options_.payload.model);
  }
  Live live;
  const Progress progress(out_, terminal_, load.Title(), Length(), &live);
  if (load.concurrency > 0) {
    return RunClosedLoop(options_.run, channels_, pool_, payloads, load.concurrency, Length(),
                         answers_.get(), &live);
  }
  return RunOpenLoop(options_.run, channels_, pool_, arrivals, payloads, Length(), answers_.get(),
                     &live);
}

absl::StatusOr<bool> Session::RunPhase(const Load& load) {
  std::unique_ptr<MetricsWatch> watch;
  SLUICE_ASSIGN_OR_RETURN(const PhaseData data, Measure(load, watch));
  const PhaseStats stats = Analyse(data, options_.warm_up, options_.objective);
  json phase = PhaseJson(stats, data);
  phase["loop"] = load.concurrency > 0 ? "closed" : "open";
  if (load.concurrency > 0) phase["concurrency"] = load.concurrency;
  if (load.rate > 0) phase["rate_per_s"] = load.rate;
  std::optional<Reconciliation> counts;
  absl::Status metrics;
  if (watch) {
    const absl::StatusOr<Reconciliation> added = AddServer(*watch, data, phase);
    metrics = added.status();
    if (added.ok()) counts = *added;
  }
  std::vector<std::string> reasons = ReasonsAgainst(options_.limits, options_.objective,
                                                    options_.duration, stats, data.cpu, counts);
  if (!metrics.ok()) reasons.push_back(absl::StrCat("metrics: ", metrics.message()));
  phase["verdict"] = reasons.empty() ? "VALID" : "INVALID";
  phase["reasons"] = reasons;
  Say(load, phase);
  phases_.push_back(std::move(phase));
  return stats.meets_objective;
}

absl::StatusOr<Reconciliation> Session::AddServer(MetricsWatch& watch, const PhaseData& data,
                                                  json& phase) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Reading> readings, watch.Stop());
  int64_t ok = 0;
  for (const CallRecord& call : data.calls) ok += call.outcome == Outcome::kOk ? 1 : 0;
  const Reconciliation counts =
      Reconcile(readings.front(), readings.back(), ok, std::ssize(data.calls) - ok);
  phase["server"] = ServerJson(readings, counts);
  return counts;
}

void Session::Say(const Load& load, const json& phase) const {
  if (out_ == nullptr) return;
  const json& latency = phase["latency_ms"];
  *out_ << absl::StrFormat(
      "%-12s offered %8.1f/s  answered %8.1f/s  p50 %8.2f  p99 %8.2f  max %8.2f ms  "
      "within %6.2f %%  %s\n",
      load.Title(), phase["offered_per_s"].get<double>(), phase["answered_per_s"].get<double>(),
      latency["p50"].get<double>(), latency["p99"].get<double>(), latency["max"].get<double>(),
      100 * phase["within_objective"].get<double>(), phase["verdict"].get<std::string>());
  // Only servers with a prefix cache report this share.
  if (phase.contains("server") && phase["server"]["reused_share"].is_number()) {
    *out_ << absl::StrFormat("  reused: %.1f %% of the prompts' tokens\n",
                             100 * phase["server"]["reused_share"].get<double>());
  }
  for (const auto& [name, count] : phase["outcomes"].items()) {
    if (name != "ok" && count != 0) *out_ << "  " << name << ": " << count << "\n";
  }
  for (const json& error : phase["errors"]) {
    *out_ << "  gRPC status " << error["code"] << ", " << error["count"] << " times: "
          << error["first_message"].dump(-1, ' ', true, json::error_handler_t::replace) << "\n";
  }
  for (const json& reason : phase["reasons"]) {
    *out_ << "  INVALID: " << reason.get<std::string>() << "\n";
  }
  *out_ << std::flush;
}

absl::Status Session::WriteAnswers() const {
  if (options_.record_path.empty()) return absl::OkStatus();
  return WriteFile(options_.record_path, answers_->Text());
}

json Session::Report() const {
  json report = {{"tool", "sluice-load"},
                 {"format", kReportFormat},
                 {"commit", std::string(kCommit)},
                 {"label", options_.label.empty() ? std::string(kCommit) : options_.label},
                 {"started", absl::FormatTime(absl::RFC3339_sec, started_, absl::UTCTimeZone())},
                 {"host", HostJson()},
                 {"server", server_},
                 {"seed", options_.workload.seed},
                 {"objective",
                  {{"latency_ms", 1e3 * Seconds(options_.objective.latency)},
                   {"percentile", options_.objective.percentile}}},
                 {"configuration", ConfigurationJson(options_)},
                 {"phases", phases_}};
  if (!peak_.is_null()) report["peak"] = peak_;
  if (!options_.check_path.empty()) {
    report["answers"] = {{"known", answers_->known()}, {"matched", answers_->matched()}};
  }
  return report;
}

}  // namespace

EndedSession RunSession(const SessionOptions& options, std::ostream* out, bool terminal) {
  Session session(options, out, terminal);
  EndedSession ended;
  ended.status = session.Prepare();
  if (!ended.status.ok()) return ended;
  ended.status = session.Run();
  json report = session.Report();
  if (report["phases"].empty()) return ended;
  if (!ended.status.ok()) report["error"] = std::string(ended.status.message());
  ended.report = std::move(report);
  return ended;
}

bool AllValid(const json& report) {
  for (const json& phase : report["phases"]) {
    if (phase["verdict"] != "VALID") return false;
  }
  return true;
}

}  // namespace sluice::load
