#include "server/security/callers.h"

#include <gmock/gmock.h>
#include <grpcpp/test/server_context_test_spouse.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/reason.h"
#include "server/common/status.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr char kAlice[] = "token:alice-0123456789";
constexpr char kBob[] = "token:bob-0123456789abc";
const MonoTime kNow{std::chrono::hours(1)};

class CallersTest : public ::testing::Test {
 protected:
  absl::Status Open(const std::string& text) {
    auth_.callers_file = directory_.File("callers");
    WriteTestFile(auth_.callers_file, text);
    auto callers = Callers::Open(
        auth_, rates_,
        [this](const absl::Status& outcome) { ++(outcome.ok() ? good_looks_ : bad_looks_); },
        [this](const grpc::ServerContextBase&, const absl::Status& error) {
          refused_.emplace_back(sluice::NameOf(ReasonOf(error)));
        });
    if (callers.ok()) callers_ = *std::move(callers);
    return callers.status();
  }

  absl::StatusOr<std::shared_ptr<const Caller>> Identify(const std::string& authorization) {
    grpc::ServerContext context;
    grpc::testing::ServerContextTestSpouse spouse(&context);
    if (!authorization.empty()) spouse.AddClientMetadata("authorization", authorization);
    return callers_->Identify(context);
  }
  std::string NameOf(const std::string& authorization) {
    const auto caller = Identify(authorization);
    return caller.ok() ? (*caller)->name() : std::string(sluice::NameOf(ReasonOf(caller.status())));
  }

  const TemporaryDirectory directory_;
  AuthOptions auth_;
  RateOptions rates_;
  int good_looks_ = 0, bad_looks_ = 0;
  std::vector<std::string> refused_;  // the reasons of refused calls
  std::unique_ptr<Callers> callers_;
};

TEST_F(CallersTest, TheDefaultBurstIsTheTokensOfOneSecond) {
  rates_ = {.requests_per_second = 1000, .requests_burst = 2000, .tokens_per_second = 10};
  ASSERT_EQ(Open(std::string("alice: ") + kAlice), absl::OkStatus());
  const auto alice = Identify("Bearer alice-0123456789").value();
  EXPECT_TRUE(alice->TakeTokens(10, kNow).ok());
  EXPECT_FALSE(alice->TakeTokens(1, kNow).ok());
  EXPECT_TRUE(alice->TakeTokens(10, kNow + std::chrono::seconds(1)).ok());
}

// The table may be replaced and freed at any time during a read.
TEST_F(CallersTest, StatisticsAreReadWhileTheTableIsReplaced) {
  const std::string text = std::string("alice: ") + kAlice + "\nbob: " + kBob;
  ASSERT_EQ(Open(text), absl::OkStatus());
  const size_t callers = callers_->Stats().size();
  std::atomic<bool> replaced = false;
  std::jthread replacing([&] {
    for (int i = 0; i < 500; ++i) {
      WriteTestFile(auth_.callers_file, text + (i % 2 == 0 ? "\n" : ""));
      EXPECT_EQ(callers_->Look(), absl::OkStatus());
    }
    replaced = true;
  });
  while (!replaced) {
    const std::vector<CallerStats> stats = callers_->Stats();
    ASSERT_EQ(stats.size(), callers);
    ASSERT_EQ(stats.back().caller, "bob");
  }
}

TEST_F(CallersTest, TheMostUrgentLevelComesFromTheFile) {
  ASSERT_EQ(Open(std::string("alice: ") + kAlice + " max_priority=3\nbob: " + kBob),
            absl::OkStatus());
  EXPECT_EQ((*Identify("Bearer alice-0123456789"))->max_priority(), 3);
  EXPECT_EQ((*Identify("Bearer bob-0123456789abc"))->max_priority(), 1);
}

TEST_F(CallersTest, AGatewayIsNamedInTheFile) {
  ASSERT_EQ(Open(std::string("alice: ") + kAlice + " gateway\nbob: " + kBob), absl::OkStatus());
  EXPECT_TRUE((*Identify("Bearer alice-0123456789"))->is_gateway());
  EXPECT_FALSE((*Identify("Bearer bob-0123456789abc"))->is_gateway());
  EXPECT_FALSE((*Identify(""))->is_gateway());
}

// The file has the hashes of a 15-byte token and a 16-byte token.
TEST_F(CallersTest, ShortTokensAreUnknownEvenIfTheirHashIsInTheFile) {
  ASSERT_EQ(Open("a: sha256:b670825c8f110a2eabfb68acbebf2497ca3c91d3ba8c532a5c213d46f5eaac21\n"
                 "b: sha256:9c5729595fb287cc2a2256280448bbe706c0a866f0372515c7483de2af4e6532"),
            absl::OkStatus());
  EXPECT_EQ(NameOf("Bearer " + std::string(15, 'x')), "token_unknown");
  EXPECT_EQ(NameOf("Bearer " + std::string(16, 'x')), "b");
}

TEST_F(CallersTest, ATokenIdentifiesItsCallerAndAWrongOneIsRefused) {
  ASSERT_EQ(Open(std::string("alice: ") + kAlice + "\nbob: " + kBob), absl::OkStatus());
  EXPECT_EQ(NameOf("Bearer alice-0123456789"), "alice");
  EXPECT_EQ(NameOf("bearer  alice-0123456789 "), "alice");
  EXPECT_EQ(NameOf("BEARER bob-0123456789abc"), "bob");
  EXPECT_EQ(NameOf(""), "anonymous");
  for (const char* wrong : {"Bearer alice-012345678", "Bearer alice-01234567890", "Bearer ",
                            "Bearer", "alice-0123456789", "Basic alice-0123456789"}) {
    EXPECT_EQ(NameOf(wrong), "token_unknown") << wrong;
    EXPECT_EQ(Identify(wrong).status().code(), absl::StatusCode::kUnauthenticated);
  }
  EXPECT_EQ(callers_->unknown_tokens(), 12);
  EXPECT_EQ(refused_, std::vector<std::string>(12, "token_unknown"));
}

TEST_F(CallersTest, AnonymousCallersMayBeRefused) {
  auth_.anonymous = false;
  ASSERT_EQ(Open(std::string("alice: ") + kAlice), absl::OkStatus());
  EXPECT_EQ(NameOf("Bearer alice-0123456789"), "alice");
  EXPECT_EQ(NameOf(""), "credential_missing");
  EXPECT_EQ(callers_->missing_credentials(), 1);
  EXPECT_EQ(callers_->unknown_tokens(), 0);
  EXPECT_THAT(refused_, ::testing::ElementsAre("credential_missing"));
}

TEST_F(CallersTest, WithoutAFileTokensAreIgnored) {
  callers_ = *Callers::Open({}, rates_, nullptr);
  EXPECT_EQ(NameOf("Bearer whatever"), "anonymous");
  EXPECT_EQ(callers_->Look(), absl::OkStatus());
}

TEST_F(CallersTest, AnInvalidFileAtTheStartIsAnError) {
  EXPECT_EQ(Open("nonsense").code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(auth_.callers_file);
  EXPECT_EQ(Callers::Open(auth_, rates_, nullptr).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CallersTest, TheLastValidFileStaysInUseUntilTheNext) {
  ASSERT_EQ(Open(std::string("alice: ") + kAlice), absl::OkStatus());
  EXPECT_EQ(callers_->Look(), absl::OkStatus());
  EXPECT_EQ(good_looks_, 1) << "nothing has changed";
  WriteTestFile(auth_.callers_file, "alice: tok");
  EXPECT_THAT(std::string(callers_->Look().message()), HasSubstr(auth_.callers_file + ":1: "));
  EXPECT_FALSE(callers_->Look().ok());
  EXPECT_EQ(bad_looks_, 1) << "told once";
  EXPECT_EQ(NameOf("Bearer alice-0123456789"), "alice");
  WriteTestFile(auth_.callers_file, std::string("bob: ") + kBob);
  EXPECT_EQ(callers_->Look(), absl::OkStatus());
  EXPECT_EQ(good_looks_, 2);
  EXPECT_EQ(NameOf("Bearer alice-0123456789"), "token_unknown");
  EXPECT_EQ(NameOf("Bearer bob-0123456789abc"), "bob");
  std::filesystem::remove(auth_.callers_file);
  EXPECT_FALSE(callers_->Look().ok());
  EXPECT_EQ(NameOf("Bearer bob-0123456789abc"), "bob");
  EXPECT_EQ(bad_looks_, 2);
}

TEST_F(CallersTest, NewDefaultsApplyToIdentifiedCallersWithoutOwnLimits) {
  rates_.requests_per_second = 1;
  ASSERT_EQ(Open(std::string("alice: ") + kAlice + " requests_per_second=2 requests_burst=2"),
            absl::OkStatus());
  const auto alice = *Identify("Bearer alice-0123456789"), anonymous = *Identify("");
  callers_->SetRates({.requests_per_second = 1, .requests_burst = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(anonymous->TakeRequest(kNow), absl::OkStatus());
  EXPECT_FALSE(anonymous->TakeRequest(kNow).ok());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(alice->TakeRequest(kNow), absl::OkStatus());
  EXPECT_FALSE(alice->TakeRequest(kNow).ok());
}

TEST_F(CallersTest, EachCallerHasItsOwnLimits) {
  rates_.requests_per_second = 1;
  ASSERT_EQ(
      Open(std::string("alice: ") + kAlice +
           " requests_per_second=2 requests_burst=3\nbob: " + kBob + " requests_per_second=0"),
      absl::OkStatus());
  const auto alice = *Identify("Bearer alice-0123456789");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(alice->TakeRequest(kNow), absl::OkStatus());
  const absl::Status refused = alice->TakeRequest(kNow);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), Reason::kRateLimited);
  EXPECT_EQ(PushbackOf(refused, absl::ZeroDuration()), absl::Milliseconds(500));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("alice: more than 2 requests"));
  EXPECT_EQ(alice->TakeRequest(kNow + std::chrono::milliseconds(500)), absl::OkStatus());
  const auto bob = *Identify("Bearer bob-0123456789abc");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(bob->TakeRequest(kNow), absl::OkStatus());
  const auto anonymous = *Identify("");
  EXPECT_EQ(anonymous->TakeRequest(kNow), absl::OkStatus());
  EXPECT_FALSE(anonymous->TakeRequest(kNow).ok()) << "the default";
  const std::vector<CallerStats> stats = callers_->Stats();
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_EQ(stats[0].caller, "anonymous");
  EXPECT_EQ(stats[0].refused, 1);
  EXPECT_EQ(stats[1].requests, 4);
  EXPECT_EQ(stats[2].requests, 100);
}

TEST_F(CallersTest, TokensAreReturnedAndCountedOnlyOnce) {
  rates_.tokens_per_second = 100;
  ASSERT_EQ(Open(std::string("alice: ") + kAlice), absl::OkStatus());
  const auto alice = *Identify("Bearer alice-0123456789");
  EXPECT_EQ(alice->TakeTokens(60, kNow), absl::OkStatus());
  EXPECT_EQ(PushbackOf(alice->TakeTokens(60, kNow), {}), absl::Milliseconds(200));
  alice->ReturnTokens(60);
  EXPECT_EQ(alice->TakeTokens(100, kNow), absl::OkStatus());
  EXPECT_EQ(callers_->Stats()[1].tokens, 0) << "the engine may still refuse the request";
  alice->CountTokens(100);
  EXPECT_EQ(callers_->Stats()[1].tokens, 100);
}

TEST_F(CallersTest, UsedLimitsSurviveNewFilesAndRates) {
  rates_.requests_per_second = 1;
  ASSERT_EQ(Open(std::string("alice: ") + kAlice), absl::OkStatus());
  EXPECT_TRUE((*Identify("Bearer alice-0123456789"))->TakeRequest(kNow).ok());
  WriteTestFile(auth_.callers_file, std::string("bob: ") + kBob + "\nalice: " + kAlice);
  ASSERT_EQ(callers_->Look(), absl::OkStatus());
  EXPECT_FALSE((*Identify("Bearer alice-0123456789"))->TakeRequest(kNow).ok());
  callers_->SetRates({.requests_per_second = 1, .requests_burst = 2});
  EXPECT_TRUE((*Identify("Bearer alice-0123456789"))->TakeRequest(kNow).ok());
  EXPECT_FALSE((*Identify("Bearer alice-0123456789"))->TakeRequest(kNow).ok());
}

}  // namespace
}  // namespace sluice
