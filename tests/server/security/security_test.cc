#include "server/security/security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/fake_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_certificate.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using testing::MakeCertificate;
using ::testing::StartsWith;

class SecurityTest : public ::testing::Test {
 protected:
  SecurityTest() {
    options_.tls.certificate_file = directory_.File("tls.crt");
    options_.tls.key_file = directory_.File("tls.key");
    options_.auth.callers_file = directory_.File("callers");
    options_.secrets.poll_interval_us = 1'000'000;
    PutPair();
    WriteTestFile(options_.auth.callers_file, "a: certificate:first\n");
  }

  void PutPair() {
    const testing::CertificatePem pair = MakeCertificate();
    WriteTestFile(options_.tls.certificate_file, pair.certificate);
    WriteTestFile(options_.tls.key_file, pair.key);
  }
  absl::Status Open() {
    auto security = Security::Open(
        options_, &clock_,
        {.certificate = [this](const absl::Status& outcome,
                               const TlsIdentity&) { certificate_ += outcome.ok(); },
         .callers = [this](const absl::Status& outcome) { callers_ += outcome.ok(); },
         .refused = nullptr});
    if (security.ok()) security_ = *std::move(security);
    return security.status();
  }
  // Waits until the files have been checked.
  void Poll() {
    const MonoTime due = clock_.Now() + seconds(1);
    clock_.AwaitWaiter(due);
    clock_.Advance(seconds(1));
    clock_.AwaitWaiter(due + seconds(1));
  }

  const TemporaryDirectory directory_;
  FakeClock clock_;
  ServerOptions options_;
  std::atomic<int> certificate_ = 0, callers_ = 0;
  std::unique_ptr<Security> security_;
};

TEST_F(SecurityTest, ErrorsBeginWithTheirOptionOrSection) {
  WriteTestFile(options_.auth.callers_file, "nonsense");
  EXPECT_THAT(std::string(Open().message()), StartsWith("server.auth.callers_file: "));
  WriteTestFile(options_.tls.key_file, "nonsense");
  EXPECT_THAT(std::string(Open().message()), StartsWith("server.tls: "));
}

TEST_F(SecurityTest, ReturnsTheErrorsOfAllFiles) {
  EXPECT_TRUE(Security::ErrorsOf(options_).empty());
  WriteTestFile(options_.auth.callers_file, "nonsense");
  EXPECT_EQ(Security::ErrorsOf(options_), std::vector<absl::Status>{Open()});
  WriteTestFile(options_.tls.key_file, "nonsense");
  const std::vector<absl::Status> errors = Security::ErrorsOf(options_);
  ASSERT_EQ(errors.size(), 2);
  EXPECT_EQ(errors[0], Open());
  EXPECT_THAT(std::string(errors[1].message()), StartsWith("server.auth.callers_file: "));
}

TEST_F(SecurityTest, CertificatesAndCallersAreReadAgainRegularly) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Poll();
  EXPECT_EQ(certificate_, 1);
  EXPECT_EQ(callers_, 1);
  PutPair();
  WriteTestFile(options_.auth.callers_file, "b: certificate:second\n");
  Poll();
  EXPECT_EQ(certificate_, 2);
  EXPECT_EQ(callers_, 2);
  EXPECT_EQ(security_->callers()->Stats()[1].caller, "b");
}

TEST_F(SecurityTest, AnInvalidCertificateDoesNotDelayNewCallers) {
  ASSERT_EQ(Open(), absl::OkStatus());
  WriteTestFile(options_.tls.key_file, "nonsense");
  WriteTestFile(options_.auth.callers_file, "b: certificate:second\n");
  EXPECT_THAT(std::string(security_->Look().message()), StartsWith("server.tls: "));
  EXPECT_EQ(security_->callers()->Stats()[1].caller, "b");
}

TEST_F(SecurityTest, LookSucceedsWithoutFiles) {
  options_ = {};
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(security_->Look(), absl::OkStatus());
  EXPECT_NE(security_->Credentials(), nullptr);
}

}  // namespace
}  // namespace sluice
