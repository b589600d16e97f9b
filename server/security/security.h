// TLS and callers of a daemon, whose files are looked at again and again.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/periodic_thread.h"
#include "grpcpp/security/server_credentials.h"
#include "server/common/options.h"
#include "server/security/callers.h"
#include "server/security/tls_files.h"

namespace sluice {

// What is called when files have changed, or something else is wrong with them; on any thread.
struct SecurityEvents {
  TlsFiles::OnChange certificate;
  Callers::OnChange callers;
};

// Thread-safe.
class Security {
 public:
  // Reads the files. Errors name them and begin with the section of the options. `clock`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<Security>> Open(const ServerOptions& options, Clock* clock,
                                                        SecurityEvents events);

  // Looks at all files now; the first that is wrong. What is good is used from then on.
  absl::Status Look();

  Callers* callers() { return callers_.get(); }

  // For one port; see TlsFiles::Credentials. Without TLS: those of plain text.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;

 private:
  Security(std::unique_ptr<TlsFiles> tls, std::unique_ptr<Callers> callers)
      : tls_(std::move(tls)), callers_(std::move(callers)) {}

  const std::unique_ptr<TlsFiles> tls_;  // nullptr: no TLS
  const std::unique_ptr<Callers> callers_;
  std::unique_ptr<PeriodicThread> polls_;  // nullptr: no files
};

}  // namespace sluice
