#include "client/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_split.h"
#include "base/reason.h"
#include "tests/support/table.h"

namespace sluice::client {
namespace {

using testing::HasSubstr;
using Level = Finding::Level;

constexpr double kNow = 1e9, kDay = 86400;

// A server of one model, without problems.
Observation HealthyServer() {
  inference::RepositoryIndexResponse index;
  auto* model = index.add_models();
  model->set_name("demo");
  model->set_version("1");
  model->set_state("READY");
  admin::v1::GetBucketsResponse buckets;
  auto* served = buckets.add_models();
  served->set_model_name("demo");
  served->set_policy("packed");
  served->set_strategy("adaptive");
  served->mutable_last_hour()->set_batches(10000);
  served->mutable_last_hour()->set_hit_rate(1);
  served->mutable_last_hour()->set_bucket_fill(1);
  served->mutable_last_hour()->set_executed_efficiency(1);
  return {.server = "a:1",
          .metrics_address = "a:2",
          .admin_address = "a:3",
          .ready = true,
          .index = index,
          .metrics = std::vector<Sample>{{"sluice_build_info", {{"version", "1.2.3"}}, 1},
                                         {"sluice_config_reload_success", {}, 1},
                                         {"sluice_admitted_total", {{"model", "demo"}}, 1000},
                                         {"sluice_engine_steps_total", {{"model", "demo"}}, 1000}},
          .buckets = buckets,
          .now_seconds = kNow,
          .client_version = "1.2.3"};
}

void AddSample(const char* name, std::map<std::string, std::string> labels, double value,
               Observation* seen) {
  seen->metrics->push_back({name, std::move(labels), value});
}

TEST(Doctor, ReportsNoProblemForAHealthyServer) {
  const std::vector<Finding> findings = Diagnose(HealthyServer());
  EXPECT_TRUE(std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level == Level::kGood && finding.todo.empty();
  })) << DiagnosisText(findings);
  const std::string text = DiagnosisText(findings);
  EXPECT_THAT(text, HasSubstr("good    the server at a:1 is ready\n"));
  EXPECT_THAT(text, HasSubstr("served: demo version 1"));
  EXPECT_THAT(text, HasSubstr("the metrics show no problem"));
  EXPECT_THAT(text, HasSubstr("0 bad, 0 to consider, 4 good\n"));
}

TEST(Doctor, ChecksMetricsAndBucketsOfAServerThatDoesNotAnswer) {
  Observation seen = HealthyServer();
  seen.ready = absl::UnavailableError("TLS");
  AddSample("sluice_config_reload_success", {}, 0, &seen);
  const std::string text = DiagnosisText(Diagnose(seen));
  EXPECT_THAT(text, HasSubstr("BAD     the server at a:1 does not answer: TLS"));
  EXPECT_THAT(text, HasSubstr("BAD     the last reload of the configuration was refused"));
  EXPECT_THAT(text, HasSubstr("served: demo version 1"));
  EXPECT_THAT(text, HasSubstr("the buckets of demo need no change"));
}

TEST(Doctor, DoesNotAdviseMetricsThatTheUserSwitchedOff) {
  Observation seen = HealthyServer();
  seen.metrics_address.clear();
  seen.metrics = absl::FailedPreconditionError("not asked");
  EXPECT_THAT(DiagnosisText(Diagnose(seen)), HasSubstr("0 bad, 0 to consider"));
}

TEST(Doctor, ALoadInProgressIsNoProblem) {
  Observation seen = HealthyServer();
  seen.index->mutable_models(0)->set_reason("loading");  // again; it is served at the same time
  auto* model = seen.index->add_models();
  model->set_name("next");
  model->set_version("2");
  model->set_state("UNAVAILABLE");
  model->set_reason("loading");
  const std::string text = DiagnosisText(Diagnose(seen));
  EXPECT_THAT(text, HasSubstr("0 bad, 0 to consider"));
  EXPECT_THAT(text, HasSubstr("good    loading: demo version 1"));
  EXPECT_THAT(text, HasSubstr("good    loading: next version 2"));
}

struct DoctorRow {
  const char* name;
  std::function<void(Observation*)> spoil;
  Level level;
  const char* what;  // a part of the only finding that is not good
  const char* todo = "";
};
class DoctorTable : public TableTest<DoctorRow> {};

TEST_P(DoctorTable, NamesTheProblemAndTheRemedy) {
  Observation seen = HealthyServer();
  row().spoil(&seen);
  std::vector<Finding> odd;
  for (const Finding& finding : Diagnose(seen)) {
    if (finding.level != Level::kGood) odd.push_back(finding);
  }
  ASSERT_EQ(odd.size(), 1u) << DiagnosisText(odd);
  EXPECT_EQ(odd[0].level, row().level);
  EXPECT_THAT(odd[0].what, HasSubstr(row().what));
  EXPECT_FALSE(odd[0].todo.empty());
  EXPECT_THAT(odd[0].todo, HasSubstr(row().todo));
}

const DoctorRow kDoctorRows[] = {
    {"NoServer", [](auto* seen) { seen->ready = absl::UnavailableError("refused"); }, Level::kBad,
     "the server at a:1 does not answer: refused"},
    {"NoServerWithAHint",
     [](auto* seen) {
       seen->ready = absl::UnavailableError("refused");
       seen->hint = "give --ca";
     },
     Level::kBad, "the server at a:1 does not answer: refused", "Hint: give --ca"},
    {"ModelsThatCannotBeListed",
     [](auto* seen) { seen->index = absl::UnimplementedError("health only"); }, Level::kAdvice,
     "models were not checked: health only", "--admin"},
    {"NotReady", [](auto* seen) { seen->ready = false; }, Level::kBad, "is not ready"},
    {"AMemoryLimitThatChangedTheLadder",
     [](auto* seen) {
       seen->buckets->mutable_models(0)->set_memory_limit_effect("Left out 2 of 4 buckets.");
     },
     Level::kAdvice, "memory limit of demo: Left out 2 of 4 buckets."},
    {"AModelThatFailed",
     [](auto* seen) {
       auto* model = seen->index->add_models();
       model->set_name("bad\x1b");
       model->set_version("2");
       model->set_state("UNAVAILABLE");
       model->set_reason("no config.json");
     },
     Level::kBad, "model bad\\x1b version 2: UNAVAILABLE, no config.json"},
    {"AServedModelWhoseNewFilesAreRefused",
     [](auto* seen) {
       seen->index->mutable_models(0)->set_reason("the last load failed: no config.json");
     },
     Level::kBad,
     "model demo version 1: served from its previous files, the last load failed: no config.json"},
    {"AModelThatFailedWithoutTheAdminAddress",
     [](auto* seen) {
       auto* model = seen->index->add_models();
       model->set_name("bad");
       model->set_version("2");
       model->set_state("UNAVAILABLE");
       model->set_reason("the admin address has the reason");
       seen->full_reasons = false;
     },
     Level::kBad, "model bad version 2: UNAVAILABLE", "Give --admin HOST:PORT"},
    {"AFolderThatIsNotAModel",
     [](auto* seen) {
       auto* model = seen->index->add_models();
       model->set_name("notes");
       model->set_state("UNAVAILABLE");
       model->set_reason("no config.json");
     },
     Level::kAdvice, "a folder that is not a model: notes, no config.json"},
    {"NoModel", [](auto* seen) { seen->index->mutable_models(0)->set_state("UNAVAILABLE"); },
     Level::kBad, "no model is served"},
    {"NoMetrics", [](auto* seen) { seen->metrics = absl::UnavailableError("refused"); },
     Level::kAdvice, "/metrics at a:2 cannot be read: refused"},
    {"MetricsOfAnotherDaemon",
     [](auto* seen) {
       seen->same_metrics = absl::InvalidArgumentError("another daemon");
       AddSample("sluice_rejected_total", {{"reason", "queue_full"}}, 250, seen);
     },
     Level::kBad, "another daemon", "--metrics-address"},
    {"AdminOfAnotherDaemon",
     [](auto* seen) { seen->same_daemon = absl::InvalidArgumentError("another daemon"); },
     Level::kBad, "another daemon"},
    {"NoAdmin", [](auto* seen) { seen->buckets = absl::UnavailableError("refused"); },
     Level::kAdvice, "the admin address a:3 does not answer"},
    {"AnotherVersion", [](auto* seen) { seen->client_version = "1.2.4"; }, Level::kAdvice,
     "the server is version 1.2.3, this client is 1.2.4"},
    {"ARefusedReload", [](auto* seen) { (*seen->metrics)[1].value = 0; }, Level::kBad,
     "the last reload of the configuration was refused"},
    {"RefusedFiles",
     [](auto* seen) {
       AddSample("sluice_secret_files_valid", {{"kind", "certificate"}}, 1, seen);
       AddSample("sluice_secret_files_valid", {{"kind", "callers"}}, 0, seen);
     },
     Level::kBad, "the server refuses the files of this kind: callers"},
    {"ACertificateForTenDays",
     [](auto* seen) {
       AddSample("sluice_certificate_expiry_timestamp_seconds", {}, kNow + 10 * kDay, seen);
     },
     Level::kAdvice, "expires in 10.0 days"},
    {"ACertificateForADay",
     [](auto* seen) {
       AddSample("sluice_certificate_expiry_timestamp_seconds", {}, kNow + kDay, seen);
     },
     Level::kBad, "expires in 1.0 days"},
    {"AnOldCertificate",
     [](auto* seen) {
       AddSample("sluice_certificate_expiry_timestamp_seconds", {}, kNow - 1, seen);
     },
     Level::kBad, "has expired"},
    {"AFullQueue",
     [](auto* seen) {
       AddSample("sluice_rejected_total", {{"model", "demo"}, {"reason", "queue_full"}}, 250, seen);
     },
     Level::kAdvice, "250 requests were refused for queue_full, 20.0% of all"},
    {"ErrorsOfCallers",
     [](auto* seen) {
       AddSample("sluice_rejected_total", {{"model", "demo"}, {"reason", "input"}}, 250, seen);
     },
     Level::kAdvice, "250 requests were refused for input, 20.0% of all; callers caused this"},
    {"CallersThatAreNotKnown",
     [](auto* seen) {
       AddSample("sluice_unauthenticated_total", {{"reason", "token_unknown"}}, 250, seen);
     },
     Level::kAdvice,
     "250 requests were refused for token_unknown, 20.0% of all; callers caused this"},
    {"ChangedOptionsThatNeedARestart",
     [](auto* seen) {
       AddSample("sluice_config_needs_restart", {{"option", "engine.queue.max_wait"}}, 1, seen);
       AddSample("sluice_config_needs_restart", {{"option", "cpu.threads"}}, 1, seen);
     },
     Level::kAdvice,
     "changed in the configuration, but only a restart applies: engine.queue.max_wait, "
     "cpu.threads"},
    {"FailedSteps",
     [](auto* seen) {
       AddSample("sluice_backend_errors_total", {{"kind", "x"}}, 2, seen);
     },
     Level::kBad, "2 steps of models failed"},
    {"MissedDeadlines",
     [](auto* seen) {
       AddSample("sluice_deadline_missed_total", {{"stage", "queue"}}, 50, seen);
     },
     Level::kAdvice, "50 admitted requests missed their deadlines, 5.0%"},
    {"ALongQueue",
     [](auto* seen) {
       AddSample("sluice_estimated_drain_seconds", {{"model", "demo"}}, 2.5, seen);
     },
     Level::kAdvice, "the queue of demo takes 2.5 s to compute"},
    {"LostPages", [](auto* seen) { AddSample("sluice_preemptions_total", {}, 10, seen); },
     Level::kAdvice, "lost their KV pages 10 times"},
    {"AFullDiskUnderTheJournal",
     [](auto* seen) {
       AddSample("sluice_file_write_errors_total", {{"file", "journal"}}, 3, seen);
       AddSample("sluice_journal_lines_dropped_total", {}, 70, seen);
       AddSample("sluice_file_write_errors_total", {{"file", "ladder"}}, 0, seen);
     },
     Level::kAdvice, "3 writes to the file of engine.history.journal failed"},
    {"AJournalThatIsFull",
     [](auto* seen) { AddSample("sluice_journal_lines_dropped_total", {}, 70, seen); },
     Level::kAdvice, "70 lines are missing in the file of engine.history.journal",
     "engine.history.journal_bytes"},
    {"AFullDiskUnderTheLadder",
     [](auto* seen) {
       AddSample("sluice_file_write_errors_total", {{"file", "journal"}}, 0, seen);
       AddSample("sluice_file_write_errors_total", {{"file", "ladder"}}, 2, seen);
     },
     Level::kAdvice, "2 writes to the file of engine.ladder.file failed"},
    {"ALogThatIsBehind", [](auto* seen) { AddSample("sluice_log_dropped_total", {}, 3, seen); },
     Level::kAdvice, "3 lines of the log were dropped"},
};
SLUICE_TABLE(DoctorTable, kDoctorRows);

TEST(Doctor, SharesOfAllReasonsHaveOneDenominator) {
  Observation seen = HealthyServer();
  AddSample("sluice_rejected_total", {{"model", "demo"}, {"reason", "parameter"}}, 250, &seen);
  AddSample("sluice_unauthenticated_total", {{"reason", "credential_missing"}}, 250, &seen);
  AddSample("sluice_unauthenticated_total", {{"reason", "token_unknown"}}, 500, &seen);
  const std::string text = DiagnosisText(Diagnose(seen));
  EXPECT_THAT(text, HasSubstr("refused for parameter, 12.5% of all"));
  EXPECT_THAT(text, HasSubstr("refused for credential_missing, 12.5% of all"));
  EXPECT_THAT(text, HasSubstr("refused for token_unknown, 25.0% of all"));
}

TEST(Doctor, NamesTheRemedyOfTheSideThatHasToChangeSomething) {
  for (const ReasonInfo& reason : kReasons) {
    SCOPED_TRACE(reason.name);
    Observation seen = HealthyServer();
    AddSample("sluice_rejected_total", {{"reason", std::string(reason.name)}}, 250, &seen);
    const std::vector<Finding> findings = Diagnose(seen);
    const auto found = std::ranges::find(findings, Level::kAdvice, &Finding::level);
    ASSERT_NE(found, findings.end());
    EXPECT_THAT(found->todo, HasSubstr(std::string(reason.remedy)));
    EXPECT_EQ(found->todo.starts_with("A caller should: "), reason.at_fault == AtFault::kCaller);
  }
}

TEST(Doctor, IgnoresValuesBelowTheLimits) {
  Observation seen = HealthyServer();
  AddSample("sluice_certificate_expiry_timestamp_seconds", {}, kNow + 15 * kDay, &seen);
  AddSample("sluice_rejected_total", {{"reason", "queue_full"}}, 1, &seen);
  AddSample("sluice_deadline_missed_total", {}, 10, &seen);
  AddSample("sluice_estimated_drain_seconds", {}, 0.9, &seen);
  AddSample("sluice_preemptions_total", {}, 9, &seen);
  const std::vector<Finding> findings = Diagnose(seen);
  EXPECT_TRUE(std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level == Level::kGood;
  })) << DiagnosisText(findings);
}

TEST(Doctor, TextIsWrapped) {
  const std::string longest(60, 'x');
  const std::string text =
      DiagnosisText({{Level::kBad, longest + " " + longest, longest + " " + longest}});
  for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 100u);
  EXPECT_THAT(text, HasSubstr("BAD     " + longest + "\n        " + longest + "\n          x"));
  EXPECT_THAT(text, HasSubstr("1 bad, 0 to consider, 0 good"));
}

}  // namespace
}  // namespace sluice::client
