#include "server/security/security.h"

#include <chrono>
#include <utility>

#include "base/error_at.h"
#include "base/out_of_memory.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr char kTls[] = "server.tls";
constexpr char kCallers[] = "server.auth.callers_file";

// Returns nullptr without TLS.
absl::StatusOr<std::unique_ptr<TlsFiles>> OpenTls(const ServerOptions& options,
                                                  TlsFiles::OnChange on_change) {
  if (options.tls.certificate_file.empty()) return nullptr;
  auto tls = TlsFiles::Open(options.tls, std::move(on_change));
  if (!tls.ok()) return ErrorAt(kTls, tls.status());
  return tls;
}

absl::StatusOr<std::unique_ptr<Callers>> OpenCallers(const ServerOptions& options,
                                                     Callers::OnChange on_change,
                                                     Callers::OnRefused on_refused) {
  auto callers =
      Callers::Open(options.auth, options.rate, std::move(on_change), std::move(on_refused));
  if (!callers.ok()) return ErrorAt(kCallers, callers.status());
  return callers;
}

}  // namespace

std::vector<absl::Status> Security::ErrorsOf(const ServerOptions& options) {
  std::vector<absl::Status> errors;
  const auto tls = OpenTls(options, [](const absl::Status&, const TlsIdentity&) {});
  if (!tls.ok()) errors.push_back(tls.status());
  const auto callers = OpenCallers(
      options, [](const absl::Status&) {}, nullptr);
  if (!callers.ok()) errors.push_back(callers.status());
  return errors;
}

absl::StatusOr<std::unique_ptr<Security>> Security::Open(const ServerOptions& options, Clock* clock,
                                                         SecurityEvents events) {
  SLUICE_ASSIGN_OR_RETURN(auto tls, OpenTls(options, std::move(events.certificate)));
  SLUICE_ASSIGN_OR_RETURN(
      auto callers, OpenCallers(options, std::move(events.callers), std::move(events.refused)));
  std::unique_ptr<Security> security(new Security(std::move(tls), std::move(callers)));
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
