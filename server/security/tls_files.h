// Keeps the last good certificate while its files are replaced.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "grpcpp/security/server_credentials.h"
#include "server/security/tls_identity.h"

namespace sluice {

// Thread-safe. What a look finds is checked as a whole before it is shown to callers; until then,
// and when it is wrong, new connections get what was last good. Connections that are there stay as
// they are.
class TlsFiles {
 public:
  // Called on the thread of a look whose outcome is another than before, or that found other good
  // files, with the outcome and what is shown from then on.
  using OnChange = std::function<void(const absl::Status& outcome, const TlsIdentity& shown)>;

  // Looks for the first time. Errors as of ReadTlsFiles and CheckTlsIdentity.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Open(const TlsOptions& options,
                                                        OnChange on_change);

  // Looks again, and returns what is wrong with the files as they are.
  absl::Status Look();

  std::shared_ptr<const TlsIdentity> shown() const;

  // For one port of a server; TLS 1.2 at least. This outlives the server, and so does the caller's
  // reference to them.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;

 private:
  TlsFiles(const TlsOptions& options, OnChange on_change)
      : options_(options), on_change_(std::move(on_change)) {}

  const TlsOptions options_;
  const OnChange on_change_;

  Mutex look_mu_;  // held for a whole look; before mu_
  absl::Status outcome_ ABSL_GUARDED_BY(look_mu_);

  mutable Mutex mu_;
  std::shared_ptr<const TlsIdentity> shown_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
