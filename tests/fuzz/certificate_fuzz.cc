// Parses the PEM files of TLS. The same input is used as certificate, key and authorities; each
// parser reads only its own kind of block.
#include "server/security/tls_identity.h"
#include "tests/fuzz/fuzz.h"

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string text(sluice::fuzz::AsText(data, size));
  const sluice::TlsOptions options = {
      .certificate_file = "crt", .key_file = "key", .client_ca_file = "ca"};
  sluice::TlsIdentity identity = {.certificate = text, .key = text, .client_ca = text};
  // The certificates of the seeds are valid at this time.
  const auto now = std::chrono::system_clock::from_time_t(1'800'000'000);
  const absl::Status status = sluice::CheckTlsIdentity(options, now, &identity);
  if (status.ok()) {
    SLUICE_CHECK(identity.expires > now);
  } else {
    sluice::fuzz::CheckRefusal(status);
  }
  return status.ok();
}
