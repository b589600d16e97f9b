// Tests of the methods other than inference.
#include "server/inference/service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::TestDaemon;

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : stub_(daemon_.Stub()) {}

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (inference::GRPCInferenceService::StubInterface::*method)(
                        grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, response);
  }

  TestDaemon daemon_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

using Stub = inference::GRPCInferenceService::StubInterface;

TEST_F(ServiceTest, ServerLiveIsTrue) {
  inference::ServerLiveResponse live;
  ASSERT_TRUE(Call(&Stub::ServerLive, inference::ServerLiveRequest(), &live).ok());
  EXPECT_TRUE(live.live());
  inference::ServerReadyResponse ready;
  ASSERT_TRUE(Call(&Stub::ServerReady, inference::ServerReadyRequest(), &ready).ok());
  EXPECT_TRUE(ready.ready());
}

TEST_F(ServiceTest, ModelReadyIsFalseForUnknownVersions) {
  inference::ModelReadyRequest request;
  inference::ModelReadyResponse response;
  request.set_name("text");
  ASSERT_TRUE(Call(&Stub::ModelReady, request, &response).ok());
  EXPECT_TRUE(response.ready());
  for (const char* version : {"2", "x"}) {
    request.set_version(version);
    ASSERT_TRUE(Call(&Stub::ModelReady, request, &response).ok());
    EXPECT_FALSE(response.ready());
  }
}

TEST_F(ServiceTest, ServerMetadataNamesVersionAndExtensions) {
  inference::ServerMetadataResponse response;
  ASSERT_TRUE(Call(&Stub::ServerMetadata, inference::ServerMetadataRequest(), &response).ok());
  EXPECT_EQ(response.name(), "sluice");
  EXPECT_EQ(response.version(), "1.2.3");
  EXPECT_THAT(response.extensions(), Contains("statistics"));
}

TEST_F(ServiceTest, DescribesMetadataAndConfigOfAModel) {
  inference::ModelMetadataRequest request;
  inference::ModelMetadataResponse metadata;
  request.set_name("text");
  ASSERT_TRUE(Call(&Stub::ModelMetadata, request, &metadata).ok());
  EXPECT_THAT(metadata.versions(), ::testing::ElementsAre("1"));
  inference::ModelConfigRequest config_request;
  inference::ModelConfigResponse config;
  config_request.set_name("text");
  ASSERT_TRUE(Call(&Stub::ModelConfig, config_request, &config).ok());
  EXPECT_EQ(config.config().max_batch_size(), 1024);
  config_request.set_name("absent");
  EXPECT_EQ(Call(&Stub::ModelConfig, config_request, &config).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, StatisticsCountRequestsAndBatches) {
  inference::ModelInferResponse answer;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(daemon_.Infer(testing::IdsRequest({1, 2}), &answer).ok());
  inference::ModelStatisticsRequest request;
  inference::ModelStatisticsResponse response;
  ASSERT_TRUE(Call(&Stub::ModelStatistics, request, &response).ok());
  ASSERT_EQ(response.model_stats_size(), 1);
  const inference::ModelStatistics& stats = response.model_stats(0);
  EXPECT_EQ(stats.name(), "text");
  EXPECT_EQ(stats.inference_count(), 3u);
  EXPECT_EQ(stats.inference_stats().success().count(), 3u);
  EXPECT_EQ(stats.inference_stats().queue().count(), 3u);
  EXPECT_GT(stats.inference_stats().success().ns(), 0u);
  EXPECT_GE(stats.execution_count(), 3u);
  request.set_name("absent");
  EXPECT_EQ(Call(&Stub::ModelStatistics, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, ListsLoadsAndUnloadsModels) {
  inference::RepositoryIndexRequest request;
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(Call(&Stub::RepositoryIndex, request, &index).ok());
  ASSERT_EQ(index.models_size(), 1);
  EXPECT_EQ(index.models(0).name(), "text");
  EXPECT_EQ(index.models(0).version(), "1");
  EXPECT_EQ(index.models(0).state(), "READY");
  request.set_repository_name("other");
  EXPECT_EQ(Call(&Stub::RepositoryIndex, request, &index).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);

  request.clear_repository_name();
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("text");
  // Triton's client sets this parameter.
  (*unload.mutable_parameters())["unload_dependents"].set_bool_param(true);
  inference::RepositoryModelUnloadResponse unloaded;
  EXPECT_TRUE(Call(&Stub::RepositoryModelUnload, unload, &unloaded).ok());
  ASSERT_TRUE(Call(&Stub::RepositoryIndex, request, &index).ok());
  EXPECT_EQ(index.models_size(), 0);
  EXPECT_EQ(Call(&Stub::RepositoryModelUnload, unload, &unloaded).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, LoadingErrorsNameTheProblem) {
  inference::RepositoryModelLoadRequest request;
  inference::RepositoryModelLoadResponse response;
  const auto load = [&] { return Call(&Stub::RepositoryModelLoad, request, &response); };
  EXPECT_THAT(load().error_message(), HasSubstr("model_name"));
  request.set_model_name("absent");
  EXPECT_EQ(load().error_code(), grpc::StatusCode::NOT_FOUND);
  auto& version = (*request.mutable_parameters())["version"];
  version.set_string_param("7");
  EXPECT_THAT(load().error_message(), HasSubstr("version 7"));
  for (const char* bad : {"0", "-1", "x", "", "2147483648", "99999999999999999999"}) {
    version.set_string_param(bad);
    EXPECT_EQ(load().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad;
    EXPECT_THAT(load().error_message(), HasSubstr("parameter version")) << bad;
  }
  version.set_bool_param(true);
  EXPECT_EQ(load().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_parameters()->clear();
  (*request.mutable_parameters())["config"].set_string_param("{}");
  EXPECT_THAT(load().error_message(), HasSubstr("unknown parameter \"config\""));
}

TEST_F(ServiceTest, EveryMethodRefusesMalformedProtobufAsInvalid) {
  const auto channel = daemon_.Channel();
  for (const char* method : {"ServerLive", "ServerReady", "ServerMetadata", "ModelReady",
                             "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex",
                             "RepositoryModelLoad", "RepositoryModelUnload", "ModelInfer"}) {
    grpc::ClientContext context;
    const grpc::Status status = testing::RawCall(
        channel, std::string("/inference.GRPCInferenceService/") + method, "\xff\xff", &context);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
  }
}

}  // namespace
}  // namespace sluice
