// A daemon whose engine is the test, and a stream to it with the smallest window that HTTP/2
// allows.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/inference.grpc.pb.h"
#include "server/calls/reply_thread.h"
#include "server/common/log.h"
#include "server/daemon/server.h"
#include "server/observe/metrics.h"
#include "server/observe/statistics.h"
#include "tests/server/protocol/messages.h"
#include "tests/server/scripted_engine.h"
#include "tests/support/fake_clock.h"

namespace sluice::testing {

inline inference::ModelInferRequest Generating(const std::string& id, int max_tokens) {
  inference::ModelInferRequest request = IdsRequest({1, 2});
  request.set_id(id);
  SetInt(&request, "max_tokens", max_tokens);
  return request;
}

inline Reply Finished(int rows) {
  Reply reply;
  reply.finish.assign(rows, FinishReason::kLength);
  return reply;
}

inline bool IsFinal(const inference::ModelStreamInferResponse& response) {
  return response.infer_response().parameters().at("triton_final_response").bool_param();
}

inline std::vector<int32_t> IdsOf(const inference::ModelStreamInferResponse& response) {
  return Values<int32_t>(RawOutput(response.infer_response(), "output_ids"));
}

class StreamTest : public ::testing::Test {
 protected:
  using ModelStreamInferResponse = inference::ModelStreamInferResponse;
  using Stream = grpc::ClientReaderWriter<inference::ModelInferRequest, ModelStreamInferResponse>;

  StreamTest()
      : log_(*Log::Create({.level = "error"})), server_(StartServer()), stub_(MakeStub()) {}

  std::unique_ptr<Stream> Open() { return stub_->ModelStreamInfer(&context_); }

  // Acts as a step of the engine that generates `ids` for row 0.
  static void Tell(const ScriptedEngine::Submitted& to, int* index, std::vector<int32_t> ids) {
    std::vector<GeneratedToken> tokens;
    for (int32_t id : ids) tokens.push_back({0, (*index)++, id, -1.0f});
    to.sink->OnTokens(tokens.data(), static_cast<int>(tokens.size()));
  }

  // Generates `ids` one by one, and reads the response after each.
  void TellAndRead(const ScriptedEngine::Submitted& to, const std::vector<int32_t>& ids,
                   Stream* stream) {
    int index = 0;
    for (int32_t id : ids) {
      Tell(to, &index, {id});
      ModelStreamInferResponse response;
      ASSERT_TRUE(stream->Read(&response));
      EXPECT_FALSE(IsFinal(response));
      EXPECT_EQ(IdsOf(response), std::vector<int32_t>{id});
    }
  }

  ScriptedEngine engine_;
  FakeClock clock_;
  std::unique_ptr<Log> log_;
  Metrics metrics_{"cpu", "1.2.3"};
  Statistics statistics_;
  RecentActivity activity_{&clock_};
  ReplyThreads replies_{1, &clock_};
  std::unique_ptr<Server> server_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  grpc::ClientContext context_;

 private:
  std::unique_ptr<Server> StartServer() {
    ServerOptions options;
    options.grpc.address = "127.0.0.1:0";
    options.metrics.address = "";
    options.admin.address = "";
    auto server = Server::Start(
        options, "1.2.3", {},
        {&engine_, &clock_, &metrics_, &statistics_, &activity_, &replies_, log_.get()});
    EXPECT_TRUE(server.ok()) << server.status();
    (*server)->SetReady();
    return *std::move(server);
  }

  // Makes a stub with the smallest window that HTTP/2 allows, so that few bytes fill it.
  std::unique_ptr<inference::GRPCInferenceService::Stub> MakeStub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return inference::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->grpc_port()),
                                  grpc::InsecureChannelCredentials(), arguments));
  }
};

}  // namespace sluice::testing
