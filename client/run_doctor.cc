#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "client/commands.h"
#include "client/doctor.h"
#include "client/exit_code.h"
#include "client/metrics_text.h"
#include "client/response.h"

namespace sluice::client {
namespace {

absl::StatusOr<bool> IsReady(const Connection& connection) {
  SLUICE_ASSIGN_OR_RETURN(const auto health, connection.Health(""));
  return health.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

nlohmann::json FindingsJson(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    const char* const level = finding.level == Finding::Level::kGood  ? "good"
                              : finding.level == Finding::Level::kBad ? "bad"
                                                                      : "advice";
    list.push_back({{"level", level}, {"what", finding.what}, {"todo", finding.todo}});
  }
  return {{"findings", std::move(list)}};
}

}  // namespace

int RunDoctor(const Arguments& arguments, const Connection& connection, const Console& console) {
  const DoctorArguments& own = arguments.doctor;
  // Read first, because the metrics count refused calls.
  const auto metrics = own.metrics_address.empty() ? absl::FailedPreconditionError("not asked")
                                                   : FetchMetrics(own.metrics_address);
  const auto admin = Connection::To(own.admin, arguments.deadline_us);
  if (!admin.ok()) return UsageError(admin.status(), console);
  const auto instance = connection.Instance();
  const absl::Status same_daemon =
      CheckSameDaemon(instance, arguments.server, *admin, own.admin.address);
  // The admin address gives the reasons of models that are not served.
  auto index = same_daemon.ok() ? admin->Index() : same_daemon;
  const bool full_reasons = index.ok();
  if (!full_reasons) index = connection.Index();
  const auto ready = IsReady(connection);
  const Observation seen = {
      .server = arguments.server,
      .metrics_address = own.metrics_address,
      .admin_address = own.admin.address,
      .ready = ready,
      .hint = HintFor(ready.status(), arguments),
      .index = index,
      .full_reasons = full_reasons,
      .metrics = metrics,
      .same_metrics = CheckSameMetrics(instance, arguments.server, metrics, own.metrics_address),
      .same_daemon = same_daemon,
      .buckets = admin->Buckets("", ""),
      .now_seconds = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()),
      .client_version = std::string(Version())};
  const std::vector<Finding> findings = Diagnose(seen);
  *console.out << (own.json ? JsonLine(FindingsJson(findings)) : DiagnosisText(findings));
  if (!seen.ready.ok()) return ExitCodeOf(seen.ready.status());
  const bool bad = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level == Finding::Level::kBad;
  });
  return bad ? kExitFailed : kExitOk;
}

}  // namespace sluice::client
