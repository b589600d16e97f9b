#include "server/security/security.h"

#include <chrono>
#include <utility>

#include "base/error_at.h"
#include "base/out_of_memory.h"

namespace sluice {
namespace {

constexpr char kTls[] = "server.tls";
constexpr char kCallers[] = "server.auth.callers_file";

}  // namespace

absl::StatusOr<std::unique_ptr<Security>> Security::Open(const ServerOptions& options, Clock* clock,
                                                         SecurityEvents events) {
  std::unique_ptr<TlsFiles> tls;
  if (!options.tls.certificate_file.empty()) {
    auto opened = TlsFiles::Open(options.tls, std::move(events.certificate));
    if (!opened.ok()) return ErrorAt(kTls, opened.status());
    tls = *std::move(opened);
  }
  auto callers = Callers::Open(options.auth, options.rate, std::move(events.callers));
  if (!callers.ok()) return ErrorAt(kCallers, callers.status());
  std::unique_ptr<Security> security(new Security(std::move(tls), *std::move(callers)));
  if (options.tls.certificate_file.empty() && options.auth.callers_file.empty()) return security;
  security->polls_ = std::make_unique<PeriodicThread>(
      clock, std::chrono::microseconds(options.secrets.poll_interval_us),
      [raw = security.get()] { raw->Look().IgnoreError(); });
  return security;
}

absl::Status Security::Look() {
  const absl::Status tls =
      tls_ == nullptr ? absl::OkStatus() : OrOutOfMemory([this] { return tls_->Look(); });
  const absl::Status callers = OrOutOfMemory([this] { return callers_->Look(); });
  if (!tls.ok()) return ErrorAt(kTls, tls);
  return callers.ok() ? callers : ErrorAt(kCallers, callers);
}

absl::Status Security::Check() const {
  const absl::Status tls = tls_ == nullptr ? absl::OkStatus() : tls_->Check();
  if (!tls.ok()) return ErrorAt(kTls, tls);
  const absl::Status callers = callers_->Check();
  return callers.ok() ? callers : ErrorAt(kCallers, callers);
}

std::shared_ptr<grpc::ServerCredentials> Security::Credentials() const {
  return tls_ == nullptr ? grpc::InsecureServerCredentials() : tls_->Credentials();
}

}  // namespace sluice
