// Tests of unread answers: the memory that they may hold, and its release.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/common/status.h"
#include "tests/server/daemon/lazy_call.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using ::testing::HasSubstr;
using testing::LazyCall;
using testing::TestDaemon;

constexpr int kRows = 512;
// The logits of all rows, and some bytes: far more than the windows of HTTP/2 hold.
constexpr int64_t kAnswerBytes = int64_t{4} * kRows * 258;

ModelInferRequest LogitsRequest(const std::string& id) { return testing::LogitsRequest(id, kRows); }

class UnreadAnswersTest : public ::testing::Test {
 protected:
  static TestDaemon::Options Budget() {
    TestDaemon::Options options = TestDaemon::Options::WithHttp();
    options.server.grpc.max_unread_bytes = 4 << 20;
    return options;
  }
  // Channels with windows that do not grow, like the windows of a caller that reads nothing.
  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return daemon_.Channel(arguments);
  }
  void AwaitUnread(double bytes) const {
    daemon_.AwaitMetric("sluice_memory_bytes", bytes, "use=\"unread_answers\"");
  }

  TestDaemon daemon_{Budget()};
};

TEST_F(UnreadAnswersTest, ACallerThatDoesNotReadIsRefusedAndKeepsALimitedAmount) {
  constexpr int kHeld =
      4;  // four answers leave less memory than a fifth needs under the caller's limit
  std::vector<std::unique_ptr<LazyCall>> calls;
  for (int i = 0; i < kHeld; ++i) {
    calls.push_back(std::make_unique<LazyCall>(Channel(), LogitsRequest("held")));
    daemon_.AwaitMetric("sluice_requests_total", i + 1);
  }
  for (int i = 0; i < 20; ++i) {
    LazyCall refused(Channel(), LogitsRequest("refused"));
    const grpc::Status status = refused.Read();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("server.grpc.max_unread_bytes"));
    EXPECT_EQ(refused.Reason(), "unread_answers");
  }
  EXPECT_EQ(daemon_.Metric("sluice_rejected_total", "reason=\"unread_answers\""), 20);
  const double held = daemon_.Metric("sluice_memory_bytes", "use=\"unread_answers\"");
  EXPECT_GE(held, kHeld * kAnswerBytes);
  EXPECT_LE(held, kHeld * (kAnswerBytes + 1024));
  for (const auto& call : calls) {
    EXPECT_TRUE(call->Read().ok());
    EXPECT_GT(call->bytes(), kAnswerBytes);
  }
  AwaitUnread(0);
  LazyCall next(Channel(), LogitsRequest("next"));
  EXPECT_TRUE(next.Read().ok());
}

TEST_F(UnreadAnswersTest, ACallerThatDisconnectsReleasesItsMemory) {
  {
    LazyCall call(Channel(), LogitsRequest("left"));
    daemon_.AwaitMetric("sluice_requests_total", 1);
    AwaitUnread(daemon_.Metric("sluice_memory_bytes", "use=\"unread_answers\""));
    EXPECT_GT(daemon_.Metric("sluice_memory_bytes", "use=\"unread_answers\""), 0);
  }
  AwaitUnread(0);
}

TEST_F(UnreadAnswersTest, RequestsOfAStreamUseTheSameBudget) {
  const auto stub = inference::GRPCInferenceService::NewStub(Channel());
  grpc::ClientContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream->Write(LogitsRequest(std::to_string(i))));
  stream->WritesDone();
  daemon_.AwaitMetric("sluice_rejected_total", 1, "reason=\"unread_answers\"");
  int answered = 0;
  ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    if (response.error_message().empty()) {
      ++answered;
      continue;
    }
    EXPECT_EQ(response.infer_response().id(), "4");
    EXPECT_EQ(response.infer_response().parameters().at("error_code").string_param(),
              "RESOURCE_EXHAUSTED");
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answered, 4);
  AwaitUnread(0);
}

TEST_F(UnreadAnswersTest, AnAnswerLargerThanTheBudgetIsInvalid) {
  ModelInferRequest request = LogitsRequest("large");
  request.clear_inputs();
  request.clear_raw_input_contents();
  testing::AddInput(&request, "input_ids", "INT32", {1024, 1},
                    testing::Bytes(std::vector<int32_t>(1024, 1)));
  for (const char* output : {"prompt_logprobs", "top_ids", "top_logprobs"}) {
    request.add_outputs()->set_name(output);
  }
  testing::SetInt(&request, "max_tokens", 4);
  testing::SetInt(&request, "num_top_logprobs", 258);
  inference::ModelInferResponse response;
  const grpc::Status status = daemon_.Infer(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("max_unread_bytes"));
}

}  // namespace
}  // namespace sluice
