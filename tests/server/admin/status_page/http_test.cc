#include "server/admin/status_page/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "tests/server/observe/scrape.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::HttpCall;
using testing::HttpGet;

class HttpTest : public ::testing::Test {
 protected:
  HttpTest()
      : http_(*HttpServer::Start("127.0.0.1:0", {.metrics = [] { return std::string("m 1\n"); },
                                                 .ready = [this] { return ready_.load(); },
                                                 .live = [this] { return live_.load(); }})) {}

  std::atomic<bool> ready_ = false;
  std::atomic<bool> live_ = true;
  std::unique_ptr<HttpServer> http_;
};

TEST_F(HttpTest, ServesMetrics) {
  const testing::HttpAnswer answer = HttpGet(http_->port(), "/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "m 1\n");
  EXPECT_THAT(answer.type, HasSubstr("version=0.0.4"));
}

TEST_F(HttpTest, ReadinessAndLivenessAreSeparate) {
  EXPECT_EQ(HttpGet(http_->port(), "/livez").status, 200);
  EXPECT_EQ(HttpGet(http_->port(), "/readyz").status, 503);
  ready_ = true;
  EXPECT_EQ(HttpGet(http_->port(), "/readyz").status, 200);
  live_ = false;
  EXPECT_EQ(HttpGet(http_->port(), "/livez").status, 503);
}

TEST_F(HttpTest, OtherHostsAreRefusedExceptForProbes) {
  EXPECT_EQ(HttpCall(http_->port(), "GET", "/metrics", "evil.example").status, 421);
  EXPECT_EQ(HttpCall(http_->port(), "GET", "/metrics", "127.0.0.1:8002").status, 200);
  EXPECT_EQ(HttpCall(http_->port(), "GET", "/livez", "evil.example").status, 200);
}

TEST(IsOwnHostTest, TakesAddressesPrivateNamesAndTheGivenOne) {
  for (const char* own :
       {"127.0.0.1", "192.0.2.1:8002", "[::1]:8002", "[2001:db8::1]", "localhost:8002", "sluice",
        "sluice.prod.svc:8002", "sluice.prod.svc.cluster.local", "printer.local", "a.internal",
        "status.example.org", "STATUS.example.org:443"}) {
    EXPECT_TRUE(IsOwnHost(own, "status.example.org")) << own;
  }
  for (const char* other :
       {"evil.example", "evil.example:8002", "127.0.0.1.evil.example", "localhost.evil.example",
        "xlocal.example", "status.example.org.evil.example", "example.org", "1.2.3.4.5"}) {
    EXPECT_FALSE(IsOwnHost(other, "status.example.org")) << other;
  }
}

TEST_F(HttpTest, OtherPathsAndMethodsAreRefused) {
  for (const char* path :
       {"/", "/metrics/x", "/metricsx", "/../etc/passwd", "/%2e%2e/etc/passwd"}) {
    EXPECT_GE(HttpGet(http_->port(), path).status, 400) << path;
  }
  EXPECT_EQ(HttpCall(http_->port(), "POST", "/metrics").status, 405);
  const testing::HttpAnswer head = HttpCall(http_->port(), "HEAD", "/livez");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

TEST_F(HttpTest, TheErrorOfATakenPortNamesIt) {
  const std::string address = absl::StrCat("127.0.0.1:", http_->port());
  const auto second = HttpServer::Start(address, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(address), HasSubstr("choose another port")));
}

}  // namespace
}  // namespace sluice
