// The TLS files: the last valid certificate stays in use while its files are replaced.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "grpcpp/security/server_credentials.h"
#include "server/security/tls_identity.h"

namespace sluice {

// Thread-safe. The files are validated as a whole before new connections use them. Until then, and
// if they are invalid, new connections use the last valid files. Existing connections are not
// affected.
class TlsFiles {
 public:
  // Called with the outcome of a look and the identity that is shown from then on, on the thread of
  // the look, if the outcome changed or the look found other valid files.
  using OnChange = std::function<void(const absl::Status& outcome, const TlsIdentity& shown)>;

  // Looks at the files for the first time. Returns the errors of ReadTlsFiles and CheckTlsIdentity.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Open(const TlsOptions& options,
                                                        OnChange on_change);

  // Looks at the files again, and returns what is wrong with their present contents.
  absl::Status Look();

  // Returns what is wrong with the files' present contents, and changes nothing.
  absl::Status Check() const;

  std::shared_ptr<const TlsIdentity> shown() const;

  // Returns credentials for one port of a server, with at least TLS 1.2. This object outlives the
  // server, as does the caller's reference to the credentials.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;

 private:
  TlsFiles(const TlsOptions& options, OnChange on_change)
      : options_(options), on_change_(std::move(on_change)) {}

  const TlsOptions options_;
  const OnChange on_change_;

  Mutex look_mu_;  // held during a whole look; taken before mu_
  absl::Status outcome_ ABSL_GUARDED_BY(look_mu_);

  mutable Mutex mu_;
  std::shared_ptr<const TlsIdentity> shown_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
