#include "server/security/tls_identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/security/secret_file.h"

namespace sluice {
namespace {

using WallTime = std::chrono::system_clock::time_point;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Provides no passphrase. Replaces OpenSSL's callback, which would prompt at the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::Status Wrong(const std::string& path, absl::string_view problem) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", problem));
}

// Returns all certificates of a file. Returns an error if it has none.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(const std::string& path,
                                                           const std::string& pem) {
  const Bio bio = Open(pem);
  std::vector<Certificate> all;
  ERR_clear_error();
  for (;;) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
    if (next == nullptr) break;
    all.push_back(std::move(next));
  }
  // The text ends properly if no further certificate begins; any other error means damage.
  if (!all.empty() && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
    return Wrong(path, absl::StrCat("the certificate after the first ", all.size(),
                                    " is damaged or cut off"));
  }
  ERR_clear_error();
  if (all.empty()) return Wrong(path, "has no certificate in PEM");
  return all;
}

absl::StatusOr<WallTime> TimeOf(const ASN1_TIME* time, const std::string& path) {
  std::tm broken{};
  if (ASN1_TIME_to_tm(time, &broken) != 1) return Wrong(path, "has no valid date");
  return std::chrono::system_clock::from_time_t(timegm(&broken));
}

// Checks the dates of a certificate and returns its expiry. Errors begin with `what`, its name.
absl::StatusOr<WallTime> CheckDates(X509* certificate, const std::string& what, WallTime now) {
  SLUICE_ASSIGN_OR_RETURN(const WallTime begins, TimeOf(X509_get0_notBefore(certificate), what));
  SLUICE_ASSIGN_OR_RETURN(const WallTime expires, TimeOf(X509_get0_notAfter(certificate), what));
  if (begins > now) return Wrong(what, "is not valid yet");
  if (expires <= now) return Wrong(what, "has expired");
  return expires;
}

absl::Status CheckChain(const std::vector<Certificate>& chain, const std::string& path,
                        WallTime now) {
  for (size_t i = 1; i < chain.size(); ++i) {
    const std::string which = absl::StrCat(path, ": certificate ", i + 1, " of the chain");
    if (X509_check_issued(chain[i].get(), chain[i - 1].get()) != X509_V_OK ||
        X509_verify(chain[i - 1].get(), X509_get0_pubkey(chain[i].get())) != 1) {
      return Wrong(which, "did not sign the one before it");
    }
    SLUICE_RETURN_IF_ERROR(CheckDates(chain[i].get(), which, now).status());
  }
  return absl::OkStatus();
}

// Checks gRPC's requirements on OpenSSL, so that bad files are refused here and not at the next
// handshake.
absl::Status CheckServable(X509* own, EVP_PKEY* key, const TlsOptions& options) {
  if (X509_check_private_key(own, key) != 1) {
    return Wrong(options.key_file,
                 absl::StrCat("does not match the certificate ", options.certificate_file));
  }
  const Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr || SSL_CTX_use_certificate(context.get(), own) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key) != 1) {
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    return Wrong(options.certificate_file,
                 absl::StrCat("cannot be served: ", reason == nullptr ? "unknown" : reason));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsIdentity> ReadTlsFiles(const TlsOptions& options) {
  TlsIdentity identity;
  for (const auto& [path, text] : {std::pair(&options.certificate_file, &identity.certificate),
                                   std::pair(&options.key_file, &identity.key),
                                   std::pair(&options.client_ca_file, &identity.client_ca)}) {
    if (path->empty()) continue;
    SLUICE_ASSIGN_OR_RETURN(*text, ReadSecretFile(*path));
  }
  return identity;
}

absl::Status CheckTlsIdentity(const TlsOptions& options, WallTime now, TlsIdentity* identity) {
  SLUICE_ASSIGN_OR_RETURN(const auto chain,
                          ParseCertificates(options.certificate_file, identity->certificate));
  const Bio key_text = Open(identity->key);
  const Key key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Wrong(options.key_file, "has no private key in PEM without passphrase");
  }
  X509* const own = chain.front().get();
  SLUICE_ASSIGN_OR_RETURN(identity->expires, CheckDates(own, options.certificate_file, now));
  SLUICE_RETURN_IF_ERROR(CheckServable(own, key.get(), options));
  SLUICE_RETURN_IF_ERROR(CheckChain(chain, options.certificate_file, now));
  if (options.client_ca_file.empty()) return absl::OkStatus();
  return ParseCertificates(options.client_ca_file, identity->client_ca).status();
}

}  // namespace sluice
