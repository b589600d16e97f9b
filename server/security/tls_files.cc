#include "server/security/tls_files.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// gRPC's C++ credentials cannot change once they are made. Its C credentials fetch a configuration
// at each handshake, and keep the current one if they get none. Each object of this class serves
// one port, and provides only configurations that are new to that port.
class FetchingCredentials final : public grpc::ServerCredentials {
 public:
  explicit FetchingCredentials(const TlsFiles* files) : files_(files) {
    const auto request = files->shown()->client_ca.empty()
                             ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                             : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &Fetch, this));
    SLUICE_CHECK(credentials_ != nullptr);
  }
  ~FetchingCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    SLUICE_CHECK(false && "these credentials check no metadata");
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<FetchingCredentials*>(self)->FetchNew(config);
  }

  grpc_ssl_certificate_config_reload_status FetchNew(grpc_ssl_server_certificate_config** config) {
    std::shared_ptr<const TlsIdentity> shown = files_->shown();
    MutexLock lock(&mu_);
    if (shown == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {shown->key.c_str(), shown->certificate.c_str()};
    // gRPC 1.51 aborts without authorities, although it uses them only for requesting client
    // certificates.
    const std::string& authorities =
        shown->client_ca.empty() ? shown->certificate : shown->client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    given_ = std::move(shown);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsFiles* const files_;
  grpc_server_credentials* credentials_;
  Mutex mu_;
  std::shared_ptr<const TlsIdentity> given_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Open(const TlsOptions& options,
                                                         OnChange on_change) {
  std::unique_ptr<TlsFiles> files(new TlsFiles(options, std::move(on_change)));
  SLUICE_RETURN_IF_ERROR(files->Look());
  return files;
}

absl::Status TlsFiles::Look(std::chrono::system_clock::time_point now) {
  MutexLock look(&look_mu_);
  const std::shared_ptr<const TlsIdentity> before = shown();
  absl::StatusOr<TlsIdentity> found = ReadTlsFiles(options_);
  const bool same = found.ok() && before != nullptr && found->SameFiles(*before);
  absl::Status outcome = found.status();
  // Files that have not changed are checked too, because they may have expired.
  if (found.ok()) outcome = CheckTlsIdentity(options_, now, &*found);
  const bool fresh = outcome.ok() && !same;
  if (fresh) {
    MutexLock lock(&mu_);
    shown_ = std::make_shared<const TlsIdentity>(*std::move(found));
  }
  const bool told = !fresh && outcome == outcome_;
  outcome_ = outcome;
  const std::shared_ptr<const TlsIdentity> after = shown();
  if (!told && after != nullptr) on_change_(outcome, *after);
  return outcome;
}

absl::Status TlsFiles::Check() const {
  SLUICE_ASSIGN_OR_RETURN(TlsIdentity found, ReadTlsFiles(options_));
  return CheckTlsIdentity(options_, std::chrono::system_clock::now(), &found);
}

std::shared_ptr<const TlsIdentity> TlsFiles::shown() const {
  MutexLock lock(&mu_);
  return shown_;
}

std::shared_ptr<grpc::ServerCredentials> TlsFiles::Credentials() const {
  return std::make_shared<FetchingCredentials>(this);
}

}  // namespace sluice
