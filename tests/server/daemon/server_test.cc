// Tests of the daemon's ports, and of the requests that they refuse.
#include "server/daemon/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/net/grpc_limits.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/observe/scrape.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using inference::ModelInferResponse;
using ::testing::HasSubstr;
using testing::HttpGet;
using testing::IdsRequest;
using testing::TestDaemon;

absl::Status StartSecond(TestDaemon* first, const std::string& grpc, const std::string& http) {
  static Metrics metrics("fake", "1.2.3");
  static Statistics statistics;
  static RecentActivity activity(Clock::Real());
  static ReplyThreads replies;
  auto log = *Log::Create({});
  ServerOptions options;
  options.grpc.address = grpc;
  options.metrics.address = http;
  options.admin.address = "";
  return Server::Start(options, "1.2.3", {},
                       {&first->engine(), Clock::Real(), &metrics, &statistics, &activity, &replies,
                        log.get()})
      .status();
}

TEST(ServerTest, PortsAreNeverShared) {
  TestDaemon daemon(TestDaemon::Options::WithHttp());
  const absl::Status grpc = StartSecond(&daemon, daemon.address(), "");
  EXPECT_EQ(grpc.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(grpc.message()), HasSubstr(daemon.address()));
  const std::string http_address = absl::StrCat("127.0.0.1:", daemon.server().http_port());
  const absl::Status http = StartSecond(&daemon, "127.0.0.1:0", http_address);
  EXPECT_EQ(http.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(http.message()), HasSubstr(http_address));
  ModelInferResponse response;
  EXPECT_TRUE(daemon.Infer(IdsRequest({1}), &response).ok()) << "the first one continues to serve";
}

// A daemon with reflection and a separate address for the admin API.
class AdminAddressTest : public ::testing::Test {
 protected:
  AdminAddressTest() {
    TestDaemon::Options options;
    options.server.admin = {.address = "127.0.0.1:0"};
    daemon_.emplace(options);
  }

  std::shared_ptr<grpc::Channel> AdminChannel() {
    return grpc::CreateChannel(absl::StrCat("127.0.0.1:", daemon_->server().admin_port()),
                               grpc::InsecureChannelCredentials());
  }
  static grpc::StatusCode Call(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& method) {
    grpc::ClientContext context;
    return testing::RawCall(channel, method, "", &context).error_code();
  }

  std::optional<TestDaemon> daemon_;
};

TEST_F(AdminAddressTest, TheInferencePortRefusesAdminCalls) {
  const auto channel = daemon_->Channel();
  EXPECT_EQ(Call(channel, "/inference.GRPCInferenceService/ServerReady"), grpc::StatusCode::OK);
  EXPECT_EQ(Call(channel, "/inference.GRPCInferenceService/RepositoryIndex"), grpc::StatusCode::OK);
  for (const char* method : {"/inference.GRPCInferenceService/RepositoryModelLoad",
                             "/inference.GRPCInferenceService/RepositoryModelUnload"}) {
    grpc::ClientContext context;
    EXPECT_EQ(testing::RawCall(channel, method, "", &context).error_code(),
              grpc::StatusCode::PERMISSION_DENIED)
        << method;
    EXPECT_EQ(testing::Trailer(context, "sluice-reason"), "permission_denied");
  }
  for (const char* method : {"/sluice.admin.v1.Admin/GetBuckets", "/sluice.admin.v1.Admin/Explain",
                             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    EXPECT_EQ(Call(channel, method), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
}

TEST(ServerTest, ReflectionAtTheInferencePortIsOptional) {
  TestDaemon::Options options;
  options.server.admin = {.address = "127.0.0.1:0"};
  options.server.grpc.reflection = true;
  TestDaemon daemon(options);
  const auto code = [&](const std::string& method) {
    grpc::ClientContext context;
    return testing::RawCall(daemon.Channel(), method, "", &context).error_code();
  };
  EXPECT_NE(code("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(code("/sluice.admin.v1.Admin/GetBuckets"), grpc::StatusCode::UNIMPLEMENTED)
      << "reflection adds no other service";
}

TEST_F(AdminAddressTest, TheAdminPortServesAllServices) {
  const auto channel = AdminChannel();
  EXPECT_EQ(Call(channel, "/sluice.admin.v1.Admin/GetBuckets"), grpc::StatusCode::OK);
  EXPECT_EQ(Call(channel, "/inference.GRPCInferenceService/ServerReady"), grpc::StatusCode::OK);
  EXPECT_EQ(Call(channel, "/grpc.health.v1.Health/Check"), grpc::StatusCode::OK);
  EXPECT_NE(Call(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Call(daemon_->Channel(), "/grpc.health.v1.Health/Check"), grpc::StatusCode::OK)
      << "both ports have health";
}

TEST(ServerTest, InvalidAddressesAreErrors) {
  TestDaemon daemon;
  EXPECT_FALSE(StartSecond(&daemon, "256.1.1.1:0", "").ok());
  EXPECT_FALSE(StartSecond(&daemon, "127.0.0.1:0", "nowhere").ok());
}

TEST(ServerTest, CompressedRequestsAreUnimplemented) {
  TestDaemon daemon;
  inference::ModelInferRequest request = IdsRequest({1});
  request.set_id(std::string(200, 'x'));
  for (grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    ModelInferResponse response;
    EXPECT_EQ(daemon.Infer(request, &response, &context).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(daemon.Metric("sluice_admitted_total"), 0);
}

TEST(ServerTest, OversizedMessagesAreRefused) {
  TestDaemon::Options options;
  options.server.grpc.max_message_bytes = 4096;
  TestDaemon daemon(options);
  inference::ModelInferRequest request = IdsRequest({1});
  ModelInferResponse response;
  EXPECT_TRUE(daemon.Infer(request, &response).ok());
  request.set_raw_input_contents(0, std::string(5000, 'x'));
  EXPECT_EQ(daemon.Infer(request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(daemon.Metric("sluice_admitted_total"), 1);
}

TEST(ServerTest, GrpcAndHttpReportTheSameReadiness) {
  TestDaemon daemon(TestDaemon::Options::WithHttp());
  const auto stub = grpc::health::v1::Health::NewStub(daemon.Channel());
  const auto serving = [&](const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(stub->Check(&context, request, &response).ok());
    return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  };
  EXPECT_TRUE(serving("sluice.readiness"));
  EXPECT_TRUE(serving("sluice.liveness"));
  EXPECT_EQ(HttpGet(daemon.server().http_port(), "/readyz").status, 200);
}

TEST(ServerTest, MetricsDescribeTheBuckets) {
  TestDaemon daemon(TestDaemon::Options::WithHttp());
  ModelInferResponse response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(daemon.Infer(IdsRequest({1, 2, 3}), &response).ok());
  const auto samples = daemon.Scrape();
  using testing::SumOf;
  EXPECT_EQ(SumOf(samples, "sluice_bucket_batches_total"), SumOf(samples, "sluice_batches_total"));
  EXPECT_GT(SumOf(samples, "sluice_bucket_capacity_tokens"), 0);
  EXPECT_EQ(SumOf(samples, "sluice_engine_steps_total"), SumOf(samples, "sluice_batches_total"));
  EXPECT_GT(SumOf(samples, "sluice_device_memory_bytes", "state=\"weights\""), 0);
  EXPECT_EQ(SumOf(samples, "sluice_log_dropped_total"), 0);
  EXPECT_EQ(SumOf(samples, "sluice_bucket_ready"),
            static_cast<double>(std::count_if(samples.begin(), samples.end(),
                                              [](const auto& each) {
                                                return each.first.starts_with(
                                                    "sluice_bucket_capacity_tokens{");
                                              })))
      << "warm-up prepared every bucket";
  EXPECT_GT(SumOf(samples, "sluice_bucket_memory_bytes"), 0);
  EXPECT_EQ(SumOf(samples, "sluice_shape_entropy_bits"), 0) << "all batches had the same size";
  EXPECT_GT(SumOf(samples, "sluice_memory_overhead"), 0);
  EXPECT_GT(SumOf(samples, "sluice_cost_law"), 0);
  for (const char* kind : {"added", "removed", "merged", "split"}) {
    EXPECT_EQ(samples.count(absl::StrCat("sluice_ladder_changes_total{device=\"fake\",kind=\"",
                                         kind, "\",model=\"text\",version=\"1\"}")),
              1u);
  }
  for (const auto& [series, value] : samples) {
    EXPECT_FALSE(std::isnan(value)) << series;
    const bool ratio = series.find("_efficiency{") != std::string::npos ||
                       series.find("_ratio{") != std::string::npos;
    if (!ratio) continue;
    EXPECT_GE(value, 0) << series;
    EXPECT_LE(value, 1) << series;
  }
}

TEST(ServerTest, AnIdleStreamDoesNotDelayOtherCalls) {
  TestDaemon daemon;
  grpc::ClientContext context;
  const auto stub = daemon.Stub();
  auto idle = stub->ModelStreamInfer(&context);  // open, but without messages
  ModelInferResponse response;
  EXPECT_TRUE(daemon.Infer(IdsRequest({1}), &response).ok());
  context.TryCancel();
  idle->Finish();
}

TEST(ServerTest, TheDefaultQuotaIsAPlausibleShareOfTheMemory) {
  const int64_t quota = WithMemoryShares(ServerOptions()).grpc.memory_quota_bytes;
  EXPECT_GT(quota, int64_t{16} << 20);
  EXPECT_LT(quota, int64_t{1} << 44);
}

}  // namespace
}  // namespace sluice
