#include "loadtest/bench/daemon/daemon.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/arguments.h"
#include "grpcpp/security/credentials.h"
#include "loadtest/bench/daemon/traffic.h"

namespace sluice::loadtest {
namespace {

constexpr int kChannels = 4;

client::Connection ConnectTo(const std::string& address, int64_t deadline_us) {
  client::Arguments arguments;
  arguments.server = address;
  arguments.deadline_us = deadline_us;
  return client::Connection(arguments, grpc::InsecureChannelCredentials());
}

// Waits until the daemon is ready; the time limit includes loading and warm-up.
absl::Status WaitUntilReady(const std::string& address) {
  constexpr absl::Duration kLimit = absl::Minutes(2);
  const absl::Time deadline = absl::Now() + kLimit;
  SLUICE_RETURN_IF_ERROR(
      load::Connect(address, {}, /*count=*/1, absl::ToChronoNanoseconds(kLimit)).status());
  const client::Connection connection = ConnectTo(address, /*deadline_us=*/5'000'000);
  while (absl::Now() < deadline) {
    const auto health = connection.Health("");
    if (health.ok() && health->status() == grpc::health::v1::HealthCheckResponse::SERVING) {
      return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::UnavailableError(absl::StrCat("the daemon at ", address, " is not ready"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const std::string& sluiced,
                                                      const std::string& model,
                                                      const std::vector<std::string>& flags) {
  SLUICE_ASSIGN_OR_RETURN(const int port, FreePort());
  SLUICE_ASSIGN_OR_RETURN(const int metrics_port, FreePort());
  const std::string address = absl::StrCat("127.0.0.1:", port);
  std::string metrics_address = absl::StrCat("127.0.0.1:", metrics_port);
  std::vector<std::string> command = {sluiced,
                                      "--model",
                                      absl::StrCat(kModel, "=", model),
                                      "--server.grpc.address",
                                      address,
                                      "--server.metrics.address",
                                      metrics_address,
                                      "--server.admin.address",
                                      "",
                                      "--server.admin.on-grpc-address",
                                      "--server.log.level",
                                      "warn"};
  command.insert(command.end(), flags.begin(), flags.end());
  SLUICE_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(command));
  SLUICE_RETURN_IF_ERROR(WaitUntilReady(address));
  SLUICE_ASSIGN_OR_RETURN(load::Channels channels,
                          load::Connect(address, {}, kChannels, std::chrono::seconds(10)));
  return std::unique_ptr<Daemon>(
      new Daemon(std::move(process), address, std::move(metrics_address), std::move(channels)));
}

Daemon::Daemon(ChildProcess process, const std::string& address, std::string metrics_address,
               load::Channels channels)
    : process_(std::move(process)),
      connection_(ConnectTo(address, /*deadline_us=*/120'000'000)),
      metrics_address_(std::move(metrics_address)),
      channels_(std::move(channels)) {}

}  // namespace sluice::loadtest
