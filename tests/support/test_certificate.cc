#include "tests/support/test_certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/check.h"

namespace sluice::testing {
namespace {

std::string Content(BIO* bio) {
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

void Extend(X509* certificate, int what, const char* value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Signs the certificate with the issuer's key, or with its own if there is no issuer.
void Sign(const CertificatePem* issuer, EVP_PKEY* own, X509* certificate) {
  if (issuer == nullptr) {
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    SLUICE_CHECK(X509_sign(certificate, own, EVP_sha256()) != 0);
    return;
  }
  BIO* const text = BIO_new_mem_buf(issuer->certificate.data(), -1);
  BIO* const key_text = BIO_new_mem_buf(issuer->key.data(), -1);
  X509* const authority = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(key_text, nullptr, nullptr, nullptr);
  SLUICE_CHECK(authority != nullptr && key != nullptr);
  X509_set_issuer_name(certificate, X509_get_subject_name(authority));
  SLUICE_CHECK(X509_sign(certificate, key, EVP_sha256()) != 0);
  X509_free(authority);
  EVP_PKEY_free(key);
  BIO_free(text);
  BIO_free(key_text);
}

}  // namespace

CertificatePem MakeCertificate(const CertificateOptions& options) {
  EVP_PKEY* const key = options.rsa_bits > 0 ? EVP_RSA_gen(static_cast<unsigned>(options.rsa_bits))
                                             : EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  SLUICE_CHECK(key != nullptr && certificate != nullptr);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_set_version(certificate, X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(certificate), options.begins.count());
  X509_gmtime_adj(X509_getm_notAfter(certificate), options.expires.count());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(options.name.c_str()), -1, -1,
                             0);
  X509_set_pubkey(certificate, key);
  Extend(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  Extend(certificate, NID_basic_constraints, "critical,CA:TRUE");
  Sign(options.issuer, key, certificate);

  BIO* const certificate_text = BIO_new(BIO_s_mem());
  BIO* const key_text = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(certificate_text, certificate);
  PEM_write_bio_PrivateKey(key_text, key, nullptr, nullptr, 0, nullptr, nullptr);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return {Content(certificate_text), Content(key_text)};
}

}  // namespace sluice::testing
