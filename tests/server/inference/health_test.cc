#include "server/inference/health.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

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
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
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

  Health health_;
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

TEST_F(HealthTest, FailingMeansNotReadyAndHungMeansNotLive) {
  health_.SetReady(true);
  health_.SetFailing(true);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("sluice.liveness"), HealthCheckResponse::SERVING);
  health_.SetFailing(false);
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

}  // namespace
}  // namespace sluice
