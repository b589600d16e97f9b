// Parses the PEM files of TLS. The input serves as certificate, key and authorities at once; each
// of them reads only its own kind of block.
#include "server/security/tls_identity.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(sluice::fuzz::AsText(data, size));
  const sluice::TlsOptions options = {
      .certificate_file = "crt", .key_file = "key", .client_ca_file = "ca"};
  sluice::TlsIdentity identity = {.certificate = text, .key = text, .client_ca = text};
  // A time at which the certificates of the seeds are valid.
  const auto now = std::chrono::system_clock::from_time_t(1'800'000'000);
  const absl::Status status = sluice::CheckTlsIdentity(options, now, &identity);
  if (status.ok()) {
    SLUICE_CHECK(identity.expires > now);
  } else {
    sluice::fuzz::CheckRefusal(status);
  }
  return 0;
}
