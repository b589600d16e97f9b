// The TLS files. The last valid certificate stays in use while its files are replaced.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "grpcpp/security/server_credentials.h"
#include "server/security/tls_identity.h"

namespace sluice {

// Thread-safe. The files are validated together before new connections use them. Until then, or if
// they are invalid, new connections use the last valid files. Existing connections are not
// affected.
class TlsFiles {
 public:
  // Called with the outcome of a Look and the identity used from then on, on the thread of the
  // Look, if the outcome changed or the files have new valid contents.
  using OnChange = std::function<void(const absl::Status& outcome, const TlsIdentity& shown)>;

  // Reads the files for the first time. Returns the errors of ReadTlsFiles and CheckTlsIdentity.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Open(const TlsOptions& options,
                                                        OnChange on_change);

  // Reads the files again and returns any error in their contents, such as the expiry of the
  // certificate in use.
  absl::Status Look(std::chrono::system_clock::time_point now = std::chrono::system_clock::now());

  // Returns any error in the files' present contents. Changes nothing.
  absl::Status Check() const;

  std::shared_ptr<const TlsIdentity> shown() const;

  // Returns credentials for one port of a server, with at least TLS 1.2. This object and the
  // caller's reference to the credentials must outlive the server.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;

 private:
  TlsFiles(const TlsOptions& options, OnChange on_change)
      : options_(options), on_change_(std::move(on_change)) {}

  const TlsOptions options_;
  const OnChange on_change_;

  Mutex look_mu_;  // held during a whole Look; taken before mu_
  absl::Status outcome_ ABSL_GUARDED_BY(look_mu_);

  mutable Mutex mu_;
  std::shared_ptr<const TlsIdentity> shown_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
