#include "server/admin/status_page/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "server/common/memory_limits.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/observe/scrape.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::HttpAnswer;
using testing::HttpGet;
using ::testing::Not;
using testing::TestDaemon;

TEST(StatusPage, PageLoadsNothingFromOtherHosts) {
  std::string page = kStatusPage;
  // The name of the SVG namespace looks like an address but is not one.
  page = absl::StrReplaceAll(page, {{"http://www.w3.org/2000/svg", ""}});
  for (const char* outside : {"http://", "https://", "src=", "@import", "url(", "innerHTML"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, Not(HasSubstr(" style=\""))) << "the policy forbids inline styles";
}

TEST(StatusPage, IsServedWithAPolicyThatAllowsOnlyItsOwnScript) {
  TestDaemon daemon(TestDaemon::Options::WithHttp());
  const HttpAnswer page = HttpGet(daemon.server().http_port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, kStatusPage);
  EXPECT_THAT(page.type, HasSubstr("text/html"));
  EXPECT_THAT(page.headers.at("Content-Security-Policy"),
              HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page.headers.at("Content-Security-Policy"), Not(HasSubstr("unsafe")));
  EXPECT_EQ(page.headers.at("X-Content-Type-Options"), "nosniff");
}

TEST(StatusPage, JsonAgreesWithMetrics) {
  TestDaemon daemon(TestDaemon::Options::WithHttp());
  for (int length = 1; length <= 20; ++length) {
    inference::ModelInferResponse response;
    const std::vector<int32_t> ids(static_cast<size_t>(length), 65);
    ASSERT_TRUE(daemon.Infer(testing::IdsRequest(ids), &response).ok());
  }
  daemon.AwaitMetric("sluice_engine_steps_total", 20);  // a step is counted after its answer
  const HttpAnswer answer = HttpGet(daemon.server().http_port(), "/status.json");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.type, HasSubstr("application/json"));
  const json status = json::parse(answer.body);
  EXPECT_EQ(status["daemon"]["phase"], "serving");
  EXPECT_EQ(status["daemon"]["version"], "1.2.3");
  ASSERT_EQ(status["models"].size(), 1u);
  const json& model = status["models"][0];
  EXPECT_EQ(model["name"], "text");
  EXPECT_EQ(model["ok"], 20);
  EXPECT_EQ(model["steps"], daemon.Metric("sluice_engine_steps_total"));
  EXPECT_EQ(model["batches"]["count"], daemon.Metric("sluice_bucket_batches_total"));
  EXPECT_EQ(model["batches"]["useful_tokens"],
            daemon.Metric("sluice_tokens_total", "kind=\"useful\""));
  EXPECT_EQ(model["latency"]["total"]["requests"], 20);
  EXPECT_EQ(model["decisions"].size(), std::min<size_t>(20, RecentActivity::kBatches));
}

TEST(StatusPage, CanBeSwitchedOff) {
  TestDaemon::Options options = TestDaemon::Options::WithHttp();
  options.server.http.status_page = false;
  TestDaemon daemon(options);
  EXPECT_EQ(HttpGet(daemon.server().http_port(), "/").status, 404);
  EXPECT_EQ(HttpGet(daemon.server().http_port(), "/status.json").status, 404);
  EXPECT_EQ(HttpGet(daemon.server().http_port(), "/metrics").status, 200);
}

TEST(StatusSource, ManyCallersShareOneSnapshotWithTheCurrentPhase) {
  TestDaemon daemon;
  FakeClock clock;
  Statistics statistics;
  RecentActivity activity(&clock);
  const ServingContext context(WithMemoryShares(ServerOptions()), "1.2.3", {},
                               {.engine = &daemon.engine(),
                                .clock = &clock,
                                .statistics = &statistics,
                                .activity = &activity});
  int asked = 0;
  StatusSource source(
      context, [&] { return ++asked < 2 ? Phase::kStarting : Phase::kServing; },
      [&] { return activity.refusals(); });
  const std::string first = source.Json();
  EXPECT_EQ(json::parse(first)["daemon"]["phase"], "starting");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(source.Json(), first);
  clock.Advance(StatusSource::kMaxAge - milliseconds(1));
  EXPECT_EQ(source.Json(), first);
  EXPECT_EQ(asked, 1);
  clock.Advance(milliseconds(1));
  const json later = json::parse(source.Json());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(later["daemon"]["phase"], "serving");
  EXPECT_EQ(later["daemon"]["uptime"], 0.5);
}

}  // namespace
}  // namespace sluice
