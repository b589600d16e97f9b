// Tests how the daemon reduces its work when memory runs short. The test sets the measured memory.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/common/status.h"
#include "tests/server/daemon/lazy_call.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using inference::ModelInferResponse;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::LazyCall;
using testing::TestDaemon;

constexpr int64_t kLimit = int64_t{48} << 20;

class OverloadedDaemonTest : public ::testing::Test {
 protected:
  TestDaemon::Options Limited() {
    TestDaemon::Options options = TestDaemon::Options::WithHttp();
    options.server.memory.limit_bytes = kLimit;
    options.server.grpc.max_rows = 4096;
    options.server.grpc.health_address = "127.0.0.1:0";
    options.server.grpc.max_unread_bytes = 16 << 20;
    // At 95 %, answers of 5 % in total are cut, which is less than the largest answer of the tests.
    options.resident = [this] {
      return cuts_once_.exchange(false) ? kLimit / 100 * 95 : resident_.load();
    };
    return options;
  }
  // Sets the used memory, and waits until the daemon has measured it.
  void Take(int percent, double level) {
    resident_ = kLimit / 100 * percent;
    daemon_.AwaitMetric("sluice_memory_overload", level);
  }
  // Returns whether the daemon reports over a new connection that it is live.
  bool IsHealthy() {
    const auto stub = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", daemon_.server().health_port()),
                            grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(std::string(kLivenessService));
    grpc::health::v1::HealthCheckResponse response;
    return stub->Check(&context, request, &response).ok() &&
           response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }
  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // keeps the windows small
    return daemon_.Channel(arguments);
  }

  std::atomic<int64_t> resident_ = 0;
  std::atomic<bool> cuts_once_ = false;
  TestDaemon daemon_{Limited()};
};

TEST_F(OverloadedDaemonTest, ConnectionsAreRefusedFirstAndThenRequests) {
  const auto stub = daemon_.Stub();
  ModelInferResponse response;
  const auto infer = [&](grpc::ClientContext* context) {
    return stub->ModelInfer(context, IdsRequest({1}), &response);
  };
  {
    grpc::ClientContext context;
    ASSERT_TRUE(infer(&context).ok());
  }
  Take(86, 1);
  {
    grpc::ClientContext context;
    EXPECT_TRUE(infer(&context).ok()) << "on an existing connection";
  }
  grpc::ClientContext refused;
  EXPECT_EQ(daemon_.Infer(IdsRequest({1}), &response, &refused).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_GE(daemon_.Metric("sluice_connections_refused_total", "reason=\"memory\""), 1);
  EXPECT_TRUE(IsHealthy()) << "probes use a connection of their own";
  Take(91, 2);
  grpc::ClientContext context;
  const grpc::Status status = infer(&context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("server.memory.limit_bytes"));
  EXPECT_EQ(testing::Trailer(context, kReasonTrailer), "memory");
  EXPECT_NE(testing::Trailer(context, "grpc-retry-pushback-ms"), "");
  Take(50, 0);
  grpc::ClientContext after;
  EXPECT_TRUE(infer(&after).ok());
  EXPECT_TRUE(daemon_.Infer(IdsRequest({1}), &response).ok());
  daemon_.ExpectBalanced();
}

TEST_F(OverloadedDaemonTest, TheLargestUnreadAnswerIsCut) {
  LazyCall small(Channel(), testing::LogitsRequest("small", 256));
  small.AwaitHeaders();
  LazyCall large(Channel(), testing::LogitsRequest("large", 3072));
  large.AwaitHeaders();
  cuts_once_ = true;
  daemon_.AwaitMetric("sluice_answers_cut_total", 1);
  const grpc::Status cut = large.Read();
  EXPECT_EQ(cut.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(cut.error_message(), HasSubstr("server.memory.limit_bytes"));
  EXPECT_TRUE(small.Read().ok());
  EXPECT_EQ(daemon_.Metric("sluice_answers_cut_total"), 1);
}

}  // namespace
}  // namespace sluice
