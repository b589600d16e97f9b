// The daemon's certificate, its key, and the authorities for client certificates.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "server/common/options.h"

namespace sluice {

// The identity, as PEM texts.
struct TlsIdentity {
  std::string certificate;  // the chain, the daemon's own first
  std::string key;
  std::string client_ca;  // if empty, callers need no certificate
  // When the daemon's own certificate expires; set by CheckTlsIdentity.
  std::chrono::system_clock::time_point expires{};

  bool SameFiles(const TlsIdentity& other) const {
    return certificate == other.certificate && key == other.key && client_ca == other.client_ca;
  }
};

// Reads the files without checking their contents. Returns the errors of ReadSecretFile.
absl::StatusOr<TlsIdentity> ReadTlsFiles(const TlsOptions& options);

// Checks that the files can be served together from `now` on, and sets `expires`. Returns
// InvalidArgument that names the file of `options` and the problem:
//   * PEM that does not parse or is cut off, or a key with a passphrase;
//   * a certificate, of the daemon or of its chain, that has expired or is not valid yet at `now`;
//   * a chain in which a certificate is not signed by the next;
//   * a key that does not match the certificate, or a pair that OpenSSL refuses to serve (for
//     example because it is too weak);
//   * an authority file without certificates.
absl::Status CheckTlsIdentity(const TlsOptions& options, std::chrono::system_clock::time_point now,
                              TlsIdentity* identity);

}  // namespace sluice
