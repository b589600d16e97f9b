// Creates certificates for tests.
#pragma once

#include <chrono>
#include <string>

namespace sluice::testing {

struct CertificatePem {
  std::string certificate;
  std::string key;
};

struct CertificateOptions {
  std::chrono::seconds begins{-3600};  // from now
  std::chrono::seconds expires{86'400};
  const CertificatePem* issuer = nullptr;  // nullptr means self-signed
  std::string name = "localhost";  // common name; the alternative names are localhost, 127.0.0.1
  int rsa_bits = 0;                // 0 means elliptic curve
};

// Creates a certificate that may sign others.
CertificatePem MakeCertificate(const CertificateOptions& options = {});

}  // namespace sluice::testing
