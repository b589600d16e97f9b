// Tests that invalid certificate files are refused and the last valid ones stay in use.
#include "server/security/tls_files.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/inference/health.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_certificate.h"

namespace sluice {
namespace {

using std::chrono::hours;
using testing::CertificatePem;
using ::testing::HasSubstr;
using testing::MakeCertificate;

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    options_.certificate_file = directory_.File("tls.crt");
    options_.key_file = directory_.File("tls.key");
    Put(good_);
  }

  void Put(const CertificatePem& pem) {
    WriteTestFile(options_.certificate_file, pem.certificate);
    WriteTestFile(options_.key_file, pem.key);
  }

  const TemporaryDirectory directory_;
  const CertificatePem good_ = MakeCertificate();
  TlsOptions options_;
};

// Returns the error of CheckTlsIdentity for the files.
class TlsIdentityTest : public TlsTest {
 protected:
  std::string Problem() {
    absl::StatusOr<TlsIdentity> identity = ReadTlsFiles(options_);
    if (!identity.ok()) return std::string(identity.status().message());
    return std::string(
        CheckTlsIdentity(options_, std::chrono::system_clock::now(), &*identity).message());
  }
};

TEST_F(TlsIdentityTest, AcceptsAPairAndReadsWhenItExpires) {
  TlsIdentity identity = *ReadTlsFiles(options_);
  const auto now = std::chrono::system_clock::now();
  ASSERT_EQ(CheckTlsIdentity(options_, now, &identity), absl::OkStatus());
  EXPECT_GT(identity.expires, now + hours(23));
  EXPECT_LT(identity.expires, now + hours(25));
}

TEST_F(TlsIdentityTest, ErrorsNameTheFileAndTheProblem) {
  const CertificatePem other = MakeCertificate();
  Put({good_.certificate, other.key});
  EXPECT_THAT(Problem(), HasSubstr("tls.key: does not match the certificate"));
  Put(MakeCertificate({.begins = hours(-2), .expires = hours(-1)}));
  EXPECT_THAT(Problem(), HasSubstr("tls.crt: has expired"));
  Put(MakeCertificate({.begins = hours(1), .expires = hours(2)}));
  EXPECT_THAT(Problem(), HasSubstr("tls.crt: is not valid yet"));
  Put(MakeCertificate({.rsa_bits = 1024}));
  EXPECT_THAT(Problem(), HasSubstr("tls.crt: cannot be served: ee key too small"));
  Put({"nonsense", good_.key});
  EXPECT_THAT(Problem(), HasSubstr("tls.crt: has no certificate"));
  Put({good_.certificate.substr(0, good_.certificate.size() / 2), good_.key});
  EXPECT_THAT(Problem(), HasSubstr("tls.crt: has no certificate"));
  Put({good_.certificate, ""});
  EXPECT_THAT(Problem(), HasSubstr("tls.key: has no private key"));
  Put({good_.certificate, std::string((1 << 20) + 1, 'x')});
  EXPECT_THAT(Problem(), HasSubstr("tls.key has more than 1048576 bytes"));
}

TEST_F(TlsIdentityTest, EachCertificateOfAChainMustBeSignedByTheNext) {
  const CertificatePem root = MakeCertificate({.name = "root"});
  const CertificatePem middle = MakeCertificate({.issuer = &root, .name = "middle"});
  const CertificatePem own = MakeCertificate({.issuer = &middle});
  Put({own.certificate + middle.certificate + root.certificate, own.key});
  EXPECT_EQ(Problem(), "");
  Put({own.certificate + root.certificate, own.key});
  EXPECT_THAT(Problem(), HasSubstr("tls.crt: certificate 2 of the chain: did not sign"));
  const CertificatePem namesake = MakeCertificate({.name = "middle"});
  Put({own.certificate + namesake.certificate, own.key});
  EXPECT_THAT(Problem(), HasSubstr("certificate 2 of the chain: did not sign"));
  const CertificatePem late =
      MakeCertificate({.begins = hours(-2), .expires = hours(-1), .name = "late"});
  const CertificatePem of_late = MakeCertificate({.issuer = &late});
  Put({of_late.certificate + late.certificate, of_late.key});
  EXPECT_THAT(Problem(), HasSubstr("certificate 2 of the chain: has expired"));
  const std::string whole = own.certificate + middle.certificate;
  Put({whole.substr(0, whole.size() - 40), own.key});
  EXPECT_THAT(Problem(), HasSubstr("tls.crt: the certificate after the first 1 is damaged"));
}

TEST_F(TlsIdentityTest, TheAuthorityFileMustHaveCertificates) {
  options_.client_ca_file = directory_.File("ca.pem");
  EXPECT_THAT(Problem(), HasSubstr("cannot read " + options_.client_ca_file));
  WriteTestFile(options_.client_ca_file, good_.key);
  EXPECT_THAT(Problem(), HasSubstr("ca.pem: has no certificate"));
  WriteTestFile(options_.client_ca_file, good_.certificate + MakeCertificate().certificate);
  EXPECT_EQ(Problem(), "");
}

TEST_F(TlsIdentityTest, OnlyRegularFilesAreRead) {
  options_.key_file = std::filesystem::path(options_.key_file).parent_path();
  EXPECT_THAT(Problem(), HasSubstr("is not a regular file"));
  options_.key_file = directory_.File("pipe");
  ASSERT_EQ(mkfifo(options_.key_file.c_str(), 0600), 0);
  EXPECT_THAT(Problem(), HasSubstr("pipe is not a regular file")) << "and the read does not block";
  options_.key_file = "/proc/self/mem";
  EXPECT_THAT(Problem(), HasSubstr("cannot read /proc/self/mem: Input/output error"));
}

class TlsFilesTest : public TlsTest {
 protected:
  absl::Status Open() {
    auto files = TlsFiles::Open(options_, [this](const absl::Status& outcome, const auto&) {
      ++(outcome.ok() ? good_looks_ : bad_looks_);
    });
    if (files.ok()) files_ = *std::move(files);
    return files.status();
  }

  int good_looks_ = 0, bad_looks_ = 0;
  std::unique_ptr<TlsFiles> files_;
};

TEST_F(TlsFilesTest, InvalidFilesAtTheStartAreAnError) {
  Put({good_.certificate, ""});
  EXPECT_EQ(Open().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(options_.key_file);
  EXPECT_EQ(Open().code(), absl::StatusCode::kNotFound);
}

TEST_F(TlsFilesTest, TheLastValidPairStaysInUseUntilTheNext) {
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(files_->shown()->certificate, good_.certificate);
  EXPECT_EQ(files_->Look(), absl::OkStatus());
  EXPECT_EQ(good_looks_, 1) << "nothing has changed";
  const CertificatePem other = MakeCertificate({.expires = hours(48)});
  Put({other.certificate, good_.key});  // only the certificate has been replaced so far
  EXPECT_FALSE(files_->Look().ok());
  EXPECT_FALSE(files_->Look().ok());
  EXPECT_EQ(bad_looks_, 1) << "told once";
  EXPECT_EQ(files_->shown()->certificate, good_.certificate);
  Put(other);
  EXPECT_EQ(files_->Look(), absl::OkStatus());
  EXPECT_EQ(files_->shown()->certificate, other.certificate);
  std::filesystem::remove(options_.certificate_file);
  EXPECT_FALSE(files_->Look().ok());
  EXPECT_FALSE(files_->Look().ok());
  EXPECT_EQ(bad_looks_, 2);
  EXPECT_EQ(files_->shown()->certificate, other.certificate);
  Put(other);
  EXPECT_EQ(files_->Look(), absl::OkStatus()) << "the same pair as the one in use";
  EXPECT_EQ(good_looks_, 3);
}

TEST_F(TlsFilesTest, TheExpiryOfThePairInUseIsReportedOnce) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const auto later = std::chrono::system_clock::now() + hours(24 * 365);
  EXPECT_THAT(files_->Look(later).message(), HasSubstr("tls.crt: has expired"));
  EXPECT_FALSE(files_->Look(later).ok());
  EXPECT_EQ(bad_looks_, 1);
  EXPECT_EQ(files_->shown()->certificate, good_.certificate);
}

// New connections get the current certificate, over a real handshake.
TEST_F(TlsFilesTest, HandshakesShowTheLatestCertificate) {
  ASSERT_EQ(Open(), absl::OkStatus());
  TransferWatch transfers{std::chrono::minutes(1), "an option", Clock::Real()};
  Health health{&transfers};
  grpc::ServerBuilder builder;
  int port = 0;
  const auto credentials = files_->Credentials();
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  builder.RegisterService(&health);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto reached_by = [port](const CertificatePem& believed) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = believed.certificate;
    const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                   grpc::SslCredentials(options), arguments);
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    grpc::health::v1::HealthCheckResponse response;
    return grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response).ok();
  };
  EXPECT_TRUE(reached_by(good_));
  const CertificatePem other = MakeCertificate({.expires = hours(48), .name = "other"});
  EXPECT_FALSE(reached_by(other));
  Put({"nonsense", other.key});
  EXPECT_FALSE(files_->Look().ok());
  EXPECT_TRUE(reached_by(good_));
  Put(other);
  EXPECT_TRUE(files_->Look().ok());
  EXPECT_TRUE(reached_by(other));
  EXPECT_FALSE(reached_by(good_));
  server->Shutdown();
}

}  // namespace
}  // namespace sluice
