#include "server/inference/health.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/daemon/lazy_call.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    stub_ = grpc::health::v1::Health::NewStub(
        channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                       grpc::InsecureChannelCredentials()));
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, response);
  }

  HealthCheckResponse::ServingStatus StatusOf(const std::string& service) {
    HealthCheckResponse response;
    EXPECT_TRUE(Check(service, &response).ok()) << service;
    return response.status();
  }

  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> Watch(grpc::ClientContext* context,
                                                                 const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Watch(context, request);
  }

  FakeClock clock_;
  TransferWatch transfers_{std::chrono::minutes(1), "an option", &clock_};
  Health health_{&transfers_};
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::health::v1::Health::Stub> stub_;
};

TEST_F(HealthTest, LivenessAndReadinessAreSeparateNames) {
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("sluice.readiness"), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("sluice.liveness"), HealthCheckResponse::SERVING);
  health_.SetReady(true);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(StatusOf("sluice.readiness"), HealthCheckResponse::SERVING);
}

TEST_F(HealthTest, IsNotReadyWithoutModels) {
  health_.SetWithoutModels(true);
  health_.SetReady(true);
  EXPECT_TRUE(health_.running());
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("sluice.liveness"), HealthCheckResponse::SERVING);
  health_.SetWithoutModels(false);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
}

TEST_F(HealthTest, IsNotReadyIfFailingAndNotLiveIfHung) {
  health_.SetReady(true);
  health_.SetFailing(true);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("sluice.liveness"), HealthCheckResponse::SERVING);
  EXPECT_TRUE(health_.failing());
  EXPECT_EQ(health_.CheckRunning(), absl::OkStatus()) << "a failing model can be replaced";
  health_.SetFailing(false);
  EXPECT_FALSE(health_.failing());
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
  grpc::ClientContext context;
  auto watch = Watch(&context, "sluice.liveness");
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  health_.SetHung();
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("sluice.readiness"), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(health_.CheckRunning().code(), absl::StatusCode::kUnavailable);
  context.TryCancel();
}

TEST_F(HealthTest, UnknownNamesAreNotFound) {
  HealthCheckResponse response;
  EXPECT_EQ(Check("inference.GRPCInferenceService", &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  auto watch = Watch(&context, "nothing");
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(HealthTest, WatchersReceiveChanges) {
  grpc::ClientContext context;
  auto watch = Watch(&context, "");
  HealthCheckResponse response;
  for (bool ready : {false, true, false}) {
    health_.SetReady(ready);
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.status(),
              ready ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  }
  health_.EndWatches();
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthTest, WatchesDoNotDelayAShutdown) {
  grpc::ClientContext early, late;
  HealthCheckResponse response;
  auto first = Watch(&early, "");
  ASSERT_TRUE(first->Read(&response));
  health_.EndWatches();
  EXPECT_EQ(first->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Watch(&late, "")->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server_->Shutdown();  // would hang forever if a watch were open
}

class HalfSentHealthTest : public HealthTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(HalfSentHealthTest, EndsWhenItsMessageDoesNotArrive) {
  testing::LazyCall call(channel_, GetParam());
  std::future<grpc::Status> ended = std::async(std::launch::async, [&] { return call.Read(); });
  while (ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    clock_.Advance(std::chrono::seconds(30));
    std::this_thread::yield();
  }
  const grpc::Status status = ended.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("message did not arrive within 1m"));
}

TEST_P(HalfSentHealthTest, AnOverlongMessageIsInvalid) {
  HealthCheckRequest request;
  request.set_service(std::string(kMaxHealthBytes, 's'));
  testing::LazyCall call(channel_, request, GetParam());
  EXPECT_EQ(call.Read().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// One byte for the key and two bytes for the length precede the text.
TEST_F(HealthTest, AMessageOfTheMaximumSizeIsRead) {
  HealthCheckRequest request;
  request.set_service(std::string(kMaxHealthBytes - 3, 's'));
  ASSERT_EQ(request.ByteSizeLong(), static_cast<size_t>(kMaxHealthBytes));
  testing::LazyCall call(channel_, request, "/grpc.health.v1.Health/Check");
  EXPECT_EQ(call.Read().error_code(), grpc::StatusCode::NOT_FOUND);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, HalfSentHealthTest,
    ::testing::Values("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"),
    [](const auto& method) {
      return std::string(method.param).substr(strlen("/grpc.health.v1.Health/"));
    });

TEST_F(HealthTest, AConnectionHasALimitedNumberOfWatches) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>> watches;
  HealthCheckResponse response;
  for (int i = 0; i < kMaxWatches; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    watches.push_back(Watch(contexts.back().get(), ""));
    ASSERT_TRUE(watches.back()->Read(&response));
  }
  grpc::ClientContext context;
  auto refused = Watch(&context, "");
  EXPECT_FALSE(refused->Read(&response));
  EXPECT_EQ(refused->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Check("sluice.liveness", &response).ok()) << "checks are not limited";
  contexts.front()->TryCancel();
  watches.front()->Finish();
  for (bool read = false; !read;) {  // until the daemon has noticed
    grpc::ClientContext next;
    read = Watch(&next, "")->Read(&response);
    next.TryCancel();
  }
}

}  // namespace
}  // namespace sluice
