#include "client/doctor.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/reason.h"
#include "base/text_wrap.h"
#include "client/advice.h"
#include "client/table.h"
#include "proto/metric_names.h"

namespace sluice::client {
namespace {

using Level = Finding::Level;
using Findings = std::vector<Finding>;

std::string Printable(absl::string_view text) { return absl::Utf8SafeCHexEscape(text); }

void LookAtServer(const Observation& seen, Findings* findings) {
  if (!seen.ready.ok()) {
    findings->push_back(
        {Level::kBad,
         absl::StrCat("the server at ", seen.server,
                      " does not answer: ", Printable(seen.ready.status().message())),
         absl::StrCat("Check that sluiced is running, and its log for the address that it listens "
                      "on.",
                      seen.hint.empty() ? "" : " Hint: ", seen.hint)});
  } else if (!*seen.ready) {
    findings->push_back({Level::kBad, absl::StrCat("the server at ", seen.server, " is not ready"),
                         "It is loading models, warming up or draining; see its log. If several "
                         "steps in a row failed, load the model again (sluice load)."});
  } else {
    findings->push_back({Level::kGood, absl::StrCat("the server at ", seen.server, " is ready")});
  }
}

void LookAtModels(const Observation& seen, Findings* findings) {
  if (!seen.index.ok()) {
    findings->push_back(
        {Level::kAdvice,
         absl::StrCat("models were not checked: ", Printable(seen.index.status().message())),
         "Give --admin HOST:PORT (server.admin.address), or --server HOST:PORT of an address that "
         "lists models."});
    return;
  }
  std::vector<std::string> ready;
  for (const auto& model : seen.index->models()) {
    const std::string name = Printable(
        model.version().empty() ? model.name()
                                : absl::StrCat(model.name(), " version ", model.version()));
    const bool served = model.state() == "READY";
    if (served) ready.push_back(name);
    if (model.reason() == "loading") {
      findings->push_back({Level::kGood, absl::StrCat("loading: ", name)});
    } else if (model.reason().empty() || model.reason() == "not loaded") {
      continue;
    } else if (model.version().empty()) {  // a folder that is not a model
      findings->push_back({Level::kAdvice,
                           absl::StrCat("the model repository has a folder that is not a model: ",
                                        name, seen.full_reasons ? ", " : "",
                                        seen.full_reasons ? Printable(model.reason()) : ""),
                           "Move the folder out of model_repository, or make it a model."});
    } else {
      findings->push_back(
          {Level::kBad,
           absl::StrCat("model ", name, ": ",
                        served ? "served from its previous files" : Printable(model.state()), ", ",
                        Printable(model.reason())),
           seen.full_reasons ? "Fix the cause that the reason names, then run sluice load."
                             : "Give --admin HOST:PORT (server.admin.address) to see the "
                               "reason. Fix its cause, then run sluice load."});
    }
  }
  if (ready.empty()) {
    findings->push_back({Level::kBad, "no model is served",
                         "List one under models in the configuration, or run sluice load."});
  } else {
    findings->push_back({Level::kGood, absl::StrCat("served: ", absl::StrJoin(ready, ", "))});
  }
}

// Checks the samples of one server.
class MetricsReader {
 public:
  MetricsReader(const Observation& seen, Findings* findings)
      : seen_(seen), samples_(*seen.metrics), findings_(findings) {}

  void LookAtAll() {
    const size_t before = findings_->size();
    LookAtVersion();
    LookAtReload();
    LookAtChangedOptions();
    LookAtFiles();
    LookAtCertificate();
    LookAtRefusals();
    LookAtFailures();
    LookAtQueue();
    LookAtPages();
    if (findings_->size() == before) {
      findings_->push_back({Level::kGood, "the metrics show no problem"});
    }
  }

 private:
  double Sum(const metric::Metric& metric, std::map<std::string, std::string> labels = {}) const {
    return SumOf(samples_, metric.name, labels);
  }

  void LookAtVersion() {
    for (const Sample& sample : samples_) {
      if (sample.name != metric::kBuildInfo.name) continue;
      const auto version = sample.labels.find("version");
      if (version == sample.labels.end() || version->second == seen_.client_version) continue;
      findings_->push_back({Level::kAdvice,
                            absl::StrCat("the server is version ", Printable(version->second),
                                         ", this client is ", seen_.client_version),
                            "Use a client of the same version as the server."});
    }
  }

  void LookAtReload() {
    for (const Sample& sample : samples_) {
      if (sample.name == metric::kReloadSuccess.name && sample.value == 0) {
        findings_->push_back(
            {Level::kBad, "the last reload of the configuration was refused",
             "The log names the file and line. The previous configuration is in use."});
      }
    }
  }

  void LookAtChangedOptions() {
    std::vector<std::string> options;
    for (const Sample& sample : samples_) {
      const auto option = sample.labels.find("option");
      if (sample.name == metric::kNeedsRestart.name && option != sample.labels.end()) {
        options.push_back(Printable(option->second));
      }
    }
    if (options.empty()) return;
    findings_->push_back({Level::kAdvice,
                          absl::StrCat("changed in the configuration, but only a restart applies: ",
                                       absl::StrJoin(options, ", ")),
                          "Restart the server to apply them, or change them back."});
  }

  void LookAtFiles() {
    for (const Sample& sample : samples_) {
      if (sample.name != metric::kSecretFilesValid.name || sample.value != 0) continue;
      const auto kind = sample.labels.find("kind");
      findings_->push_back(
          {Level::kBad,
           absl::StrCat("the server refuses the files of this kind: ",
                        kind == sample.labels.end() ? "" : kind->second),
           "The log states why. The last valid files are in use, so revoked tokens and "
           "certificates are still accepted."});
    }
  }

  void LookAtCertificate() {
    constexpr double kDay = 86400;
    for (const Sample& sample : samples_) {
      if (sample.name != metric::kCertificateExpiry.name) continue;
      const double days = (sample.value - seen_.now_seconds) / kDay;
      if (days > 14) continue;
      findings_->push_back({days > 3 ? Level::kAdvice : Level::kBad,
                            days > 0 ? absl::StrFormat("the certificate expires in %.1f days", days)
                                     : "the certificate has expired",
                            "Renew it; the server reads valid new files without a restart."});
    }
  }

  void LookAtRefusals() {
    // The share is of all requests that arrived, so that the shares of all reasons can be added.
    const double all =
        Sum(metric::kAdmitted) + Sum(metric::kRejected) + Sum(metric::kUnauthenticated);
    for (const ReasonInfo& reason : kReasons) {
      const std::string name(reason.name);
      const double refused = Sum(metric::kRejected, {{"reason", name}}) +
                             Sum(metric::kUnauthenticated, {{"reason", name}});
      if (refused == 0 || refused < 0.001 * all) continue;
      const bool by_caller = reason.at_fault == AtFault::kCaller;
      findings_->push_back(
          {Level::kAdvice,
           absl::StrFormat("%.0f requests were refused for %s, %s of all%s", refused, name,
                           Percent(refused / all), by_caller ? "; callers caused this" : ""),
           by_caller ? absl::StrCat("A caller should: ", std::string(reason.remedy),
                                    " The log lines with reason=", name, " have the addresses.")
                     : std::string(reason.remedy)});
    }
  }

  void LookAtFailures() {
    if (const double errors = Sum(metric::kBackendErrors); errors > 0) {
      findings_->push_back({Level::kBad, absl::StrFormat("%.0f steps of models failed", errors),
                            "The log has the reason of each; runbooks.md describes the remedies."});
    }
    const double missed = Sum(metric::kDeadlineMissed);
    if (const double admitted = Sum(metric::kAdmitted); missed > 0.01 * admitted && missed > 0) {
      findings_->push_back({Level::kAdvice,
                            absl::StrFormat("%.0f admitted requests missed their deadlines, %s",
                                            missed, Percent(admitted > 0 ? missed / admitted : 1)),
                            "sluice explain ID shows where such a request spent its time."});
    }
    LookAtWrites("journal", "engine.history.journal", "steps are missing in the journal");
    if (const double lost = Sum(metric::kJournalLinesDropped);
        lost > 0 && Sum(metric::kFileWriteErrors, {{"file", "journal"}}) == 0) {
      findings_->push_back(
          {Level::kAdvice,
           absl::StrFormat("%.0f lines are missing in the file of engine.history.journal", lost),
           "The log has the reason. Write to a faster disk, or raise "
           "engine.history.journal_bytes, and restart the server."});
    }
    LookAtWrites("ladder", "engine.ladder.file",
                 "a restart uses an older ladder and measures again");
    if (const double dropped = Sum(metric::kLogDropped); dropped > 0) {
      findings_->push_back(
          {Level::kAdvice, absl::StrFormat("%.0f lines of the log were dropped", dropped),
           "Log less (server.log.access_sample), or write the log to a faster device."});
    }
  }

  void LookAtWrites(const char* file, const char* option, const char* effect) {
    const double failed = Sum(metric::kFileWriteErrors, {{"file", file}});
    if (failed == 0) return;
    findings_->push_back(
        {Level::kAdvice,
         absl::StrFormat("%.0f writes to the file of %s failed; %s", failed, option, effect),
         "The log has the reason. Free space on the disk, or set the option to a file on another "
         "one and restart the server."});
  }

  void LookAtQueue() {
    for (const Sample& sample : samples_) {
      if (sample.name != metric::kDrain.name || sample.value < 1) continue;
      const auto model = sample.labels.find("model");
      findings_->push_back(
          {Level::kAdvice,
           absl::StrFormat("the queue of %s takes %.1f s to compute",
                           model == sample.labels.end() ? "a model" : Printable(model->second),
                           sample.value),
           "Add replicas, or limit the queue (engine.queue) so that clients use other servers."});
    }
  }

  void LookAtPages() {
    const double preempted = Sum(metric::kPreemptions), steps = Sum(metric::kSteps);
    if (preempted == 0 || preempted < 0.01 * steps) return;
    findings_->push_back(
        {Level::kAdvice,
         absl::StrFormat("sequences lost their KV pages %.0f times and were computed again",
                         preempted),
         "Allow more memory for KV pages (engine.kv.memory_bytes), or run fewer sequences "
         "(engine.batch.max_batch_sequences)."});
  }

  const Observation& seen_;
  const std::vector<Sample>& samples_;
  Findings* const findings_;
};

void LookAtBuckets(const Observation& seen, Findings* findings) {
  if (!seen.buckets.ok()) {
    findings->push_back(
        {Level::kAdvice,
         absl::StrCat("the admin address ", seen.admin_address,
                      " does not answer: ", Printable(seen.buckets.status().message())),
         "Buckets were not checked. Give --admin HOST:PORT, or --admin https://HOST:PORT if the "
         "server has server.admin.secured; the server needs server.admin.address."});
    return;
  }
  if (!seen.same_daemon.ok()) {
    findings->push_back({Level::kBad, std::string(seen.same_daemon.message()),
                         "Buckets were not checked. Give --admin HOST:PORT, or set SLUICE_ADMIN."});
    return;
  }
  for (const auto& model : seen.buckets->models()) {
    if (!model.memory_limit_effect().empty()) {
      findings->push_back({Level::kAdvice,
                           absl::StrCat("memory limit of ", Printable(model.model_name()), ": ",
                                        Printable(model.memory_limit_effect())),
                           "Raise engine.ladder.memory_limit_bytes, or set another limit for this "
                           "model: memory_limit_bytes under the key ladder of the model."});
    }
    const int64_t batches = model.last_hour().batches();
    if (batches < kBatchesToJudgeBy) {
      findings->push_back(
          {Level::kGood, absl::StrCat(Printable(model.model_name()), " ran ", batches,
                                      " batches in the last hour, too few "
                                      "to judge its buckets")});
      continue;
    }
    const std::vector<Advice> advice = Advise(model);
    for (const Advice& each : advice) {
      findings->push_back(
          {Level::kAdvice,
           absl::StrCat("buckets of ", Printable(model.model_name()), ": ", each.finding),
           each.action});
    }
    if (advice.empty()) {
      findings->push_back(
          {Level::kGood,
           absl::StrCat("the buckets of ", Printable(model.model_name()), " need no change")});
    }
  }
}

}  // namespace

std::vector<Finding> Diagnose(const Observation& observation) {
  Findings findings;
  LookAtServer(observation, &findings);
  LookAtModels(observation, &findings);
  if (!observation.same_metrics.ok()) {
    findings.push_back({Level::kBad, std::string(observation.same_metrics.message()),
                        "Counters were not checked. Give --metrics-address HOST:PORT."});
  } else if (observation.metrics.ok()) {
    MetricsReader(observation, &findings).LookAtAll();
  } else if (!observation.metrics_address.empty()) {
    findings.push_back(
        {Level::kAdvice,
         absl::StrCat("/metrics at ", observation.metrics_address,
                      " cannot be read: ", Printable(observation.metrics.status().message())),
         "Counters were not checked. Set --metrics-address."});
  }
  LookAtBuckets(observation, &findings);
  return findings;
}

std::string DiagnosisText(const std::vector<Finding>& findings) {
  constexpr size_t kIndent = 8;
  const auto word = [](Level level) {
    return level == Level::kGood ? "good" : level == Level::kBad ? "BAD" : "advice";
  };
  const std::string indent(kIndent, ' ');
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-*s", static_cast<int>(kIndent), word(finding.level));
    absl::StrAppend(
        &text, absl::StrJoin(Wrap(finding.what, kTerminalColumns - kIndent), "\n" + indent), "\n");
    for (const std::string& line : Wrap(finding.todo, kTerminalColumns - kIndent - 2)) {
      absl::StrAppend(&text, indent, "  ", line, "\n");
    }
  }
  const auto count = [&](Level level) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& finding) { return finding.level == level; });
  };
  absl::StrAppendFormat(&text, "%d bad, %d to consider, %d good\n", count(Level::kBad),
                        count(Level::kAdvice), count(Level::kGood));
  return text;
}

}  // namespace sluice::client
