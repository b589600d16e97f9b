// TLS and the callers of a daemon. Their files are checked for changes regularly.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/periodic_thread.h"
#include "grpcpp/security/server_credentials.h"
#include "server/common/options.h"
#include "server/security/callers.h"
#include "server/security/tls_files.h"

namespace sluice {

// `certificate` and `callers` are called on any thread when files, or the error in them, have
// changed.
struct SecurityEvents {
  TlsFiles::OnChange certificate;
  Callers::OnChange callers;
  Callers::OnRefused refused;  // called for each call without a known credential
};

// Thread-safe.
class Security {
 public:
  // Reads the files. Errors name the file and begin with the section of the options. `clock`
  // outlives this object.
  static absl::StatusOr<std::unique_ptr<Security>> Open(const ServerOptions& options, Clock* clock,
                                                        SecurityEvents events);

  // Reads the files as Open does, and returns the errors of all of them. Nothing stays open.
  static std::vector<absl::Status> ErrorsOf(const ServerOptions& options);

  // Checks all files now and returns the first error. Valid files are used from now on.
  absl::Status Look();

  // Returns the first error in the present files. Changes nothing.
  absl::Status Check() const;

  Callers* callers() { return callers_.get(); }

  // Returns the credentials for one port; see TlsFiles::Credentials. Without TLS, they are
  // insecure.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;

 private:
  Security(std::unique_ptr<TlsFiles> tls, std::unique_ptr<Callers> callers)
      : tls_(std::move(tls)), callers_(std::move(callers)) {}

  const std::unique_ptr<TlsFiles> tls_;  // nullptr without TLS
  const std::unique_ptr<Callers> callers_;
  std::unique_ptr<PeriodicThread> polls_;  // nullptr if there are no files
};

}  // namespace sluice
