// Tests of a daemon that ends while work is in progress.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "tests/server/daemon/lazy_call.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/observe/scrape.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using inference::ModelInferResponse;
using ::testing::HasSubstr;
using testing::HttpGet;
using testing::IdsRequest;
using testing::TestDaemon;

std::future<grpc::Status> InferLater(const TestDaemon& daemon, const std::vector<int32_t>& ids) {
  return std::async(std::launch::async, [&daemon, ids] {
    ModelInferResponse response;
    return daemon.Infer(IdsRequest(ids), &response);
  });
}

class DrainTest : public ::testing::Test {
 protected:
  explicit DrainTest(const TestDaemon::Options& options = TestDaemon::Options::WithHttp())
      : daemon_(options) {
    daemon_.backend().OnReplay([this](const RecordedBatch&) {
      gate_.Pass();
      return absl::OkStatus();
    });
  }

  Gate gate_;  // outlives the engine's thread
  TestDaemon daemon_;
};

TEST_F(DrainTest, TheStatusShowsThatStepsFail) {
  daemon_.server().health().SetFailing(true);
  EXPECT_THAT(HttpGet(daemon_.server().http_port(), "/status.json").body, HasSubstr("\"failing\""));
  EXPECT_EQ(HttpGet(daemon_.server().http_port(), "/readyz").status, 503);
}

TEST_F(DrainTest, AcceptedRequestsFinishAndNewOnesAreRefused) {
  std::vector<std::future<grpc::Status>> accepted;
  for (int i = 0; i < 20; ++i) accepted.push_back(InferLater(daemon_, {i}));
  gate_.AwaitArrivals(1);
  daemon_.AwaitMetric("sluice_admitted_total", 20);
  const auto late = daemon_.Stub();
  std::future<void> drained = std::async(std::launch::async, [&] { daemon_.server().Drain(); });
  while (HttpGet(daemon_.server().http_port(), "/readyz").status != 503) {
  }
  EXPECT_EQ(HttpGet(daemon_.server().http_port(), "/livez").status, 200)
      << "draining is not a fault";
  EXPECT_THAT(HttpGet(daemon_.server().http_port(), "/status.json").body,
              HasSubstr("\"draining\""));

  // The engine stops admission shortly after the daemon becomes not ready.
  grpc::Status refused;
  std::string reason;
  do {
    grpc::ClientContext context;  // a request that is still admitted must end soon
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    ModelInferResponse response;
    refused = late->ModelInfer(&context, IdsRequest({1}), &response);
    reason = testing::Trailer(context, kReasonTrailer);
  } while (refused.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << refused.error_message();
  EXPECT_EQ(reason, "draining");

  gate_.Open();
  for (std::future<grpc::Status>& call : accepted) {
    const grpc::Status status = call.get();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  drained.get();
  EXPECT_EQ(daemon_.Metric("sluice_requests_total", "code=\"OK\""), 20);
  daemon_.ExpectBalanced();
}

TEST_F(DrainTest, WatchesReportTheDrainAndDoNotDelayIt) {
  const auto stub = grpc::health::v1::Health::NewStub(daemon_.Channel());
  grpc::ClientContext context;
  auto watch = stub->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  std::future<void> drained = std::async(std::launch::async, [&] { daemon_.server().Drain(); });
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  drained.get();
}

TEST_F(DrainTest, AnAnswerIsDeliveredWhileItsCallerTakesIt) {
  gate_.Open();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // a small window, which the answer fills
  testing::LazyCall call(daemon_.Channel(arguments), testing::LogitsRequest("slow", 512));
  daemon_.AwaitMetric("sluice_requests_total", 1);
  std::future<void> drained = std::async(std::launch::async, [&] { daemon_.server().Drain(); });
  // Longer than the minimum time for answers.
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
  EXPECT_TRUE(call.Read().ok());
  EXPECT_GT(call.bytes(), 4 * 512 * 258);
  drained.get();
}

TEST_F(DrainTest, IdleStreamsAndCallsWithoutAMessageDoNotDelayIt) {
  const auto stub = daemon_.Stub();
  grpc::ClientContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  gate_.Open();
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Write(IdsRequest({1})));
  ASSERT_TRUE(stream->Read(&response));
  constexpr char kCallbacks[] = "sluice_callbacks_total", kBegun[] = "event=\"begin\"";
  const double begun = daemon_.Metric(kCallbacks, kBegun);
  testing::LazyCall half_sent(daemon_.Channel());
  daemon_.AwaitMetric(kCallbacks, begun + 1, kBegun);
  daemon_.server().Drain();  // its timeout of 30 s is not used up
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(half_sent.Read().error_code(), grpc::StatusCode::UNAVAILABLE);
}

class ImpatientDrainTest : public DrainTest {
 protected:
  static TestDaemon::Options Impatient() {
    TestDaemon::Options options;
    options.server.lifecycle.drain_timeout_us = 10'000;
    return options;
  }
  ImpatientDrainTest() : DrainTest(Impatient()) {}
};

TEST_F(ImpatientDrainTest, AHungDeviceDoesNotDelayTheEnd) {
  std::future<grpc::Status> hung = InferLater(daemon_, {1});
  gate_.AwaitArrivals(1);
  std::future<grpc::Status> waiting = InferLater(daemon_, {2});
  daemon_.AwaitMetric("sluice_admitted_total", 2);
  daemon_.server().Drain();  // returns with the gate still closed
  EXPECT_FALSE(hung.get().ok());
  EXPECT_FALSE(waiting.get().ok());
  gate_.Open();
  daemon_.AwaitMetric("sluice_requests_running", 0);
  daemon_.ExpectBalanced();
}

TEST_F(DrainTest, AServerMayBeDestroyedWithoutADrain) {
  std::future<grpc::Status> running = InferLater(daemon_, {1});
  gate_.AwaitArrivals(1);
  grpc::ClientContext context;
  const auto stub = daemon_.Stub();
  auto stream = stub->ModelStreamInfer(&context);
  stream->Write(IdsRequest({2}));
  daemon_.AwaitMetric("sluice_admitted_total", 2);
  daemon_.StopServer();
  EXPECT_FALSE(running.get().ok());
  EXPECT_FALSE(stream->Finish().ok());
  gate_.Open();  // the engine's results then find no call
}

}  // namespace
}  // namespace sluice
