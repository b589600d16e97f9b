// Tests of ModelStreamInfer over real sockets.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/inference/stream_session.h"
#include "tests/server/calls/joined_answer.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::SetInt;
using testing::TestDaemon;

ModelInferRequest Named(const std::string& id, const std::vector<int32_t>& ids) {
  ModelInferRequest request = IdsRequest(ids);
  request.set_id(id);
  return request;
}

class StreamInferTest : public ::testing::Test {
 protected:
  StreamInferTest() : stub_(daemon_.Stub()) {}

  TestDaemon daemon_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

TEST_F(StreamInferTest, EachRequestGetsOneResponseAndErrorsDoNotEndTheStream) {
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  ModelInferRequest bad = Named("bad", {1});
  SetInt(&bad, "top_k", -5);
  ModelInferRequest absent = Named("absent", {1});
  absent.set_model_name("absent");
  for (const ModelInferRequest& request : {Named("a", {1, 2}), bad, absent, Named("b", {3})}) {
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  std::map<std::string, std::string> errors;
  ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    const inference::ModelInferResponse& inner = response.infer_response();
    EXPECT_TRUE(inner.parameters().at("triton_final_response").bool_param());
    EXPECT_EQ(inner.outputs_size() > 0, response.error_message().empty());
    EXPECT_TRUE(errors.emplace(inner.id(), response.error_message()).second);
  }
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_EQ(errors["a"], "");
  EXPECT_EQ(errors["b"], "");
  EXPECT_THAT(errors["bad"], HasSubstr("top_k"));
  EXPECT_THAT(errors["absent"], HasSubstr("absent"));
  daemon_.ExpectBalanced();
}

TEST_F(StreamInferTest, TheResponsesTogetherEqualTheUnaryAnswer) {
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  std::map<std::string, testing::JoinedAnswer> unary, streamed;
  constexpr int kRequests = 8;
  for (int i = 0; i < kRequests; ++i) {
    ModelInferRequest request = Named(absl::StrCat(i), {i, 2 * i, 65});
    SetInt(&request, "max_tokens", 10 + 3 * i);
    SetInt(&request, "num_top_logprobs", i % 3);
    if (i % 2 == 0) (*request.mutable_parameters())["stop"].set_string_param("[\"a\", \"b\"]");
    inference::ModelInferResponse response;
    ASSERT_TRUE(daemon_.Infer(request, &response).ok());
    unary[request.id()].Add(response);
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  int responses = 0, last = 0;
  ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    ++responses;
    const inference::ModelInferResponse& inner = response.infer_response();
    last += inner.parameters().at("triton_final_response").bool_param();
    streamed[inner.id()].Add(inner);
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(last, kRequests);
  EXPECT_GE(responses, kRequests);
  EXPECT_EQ(streamed, unary);
  daemon_.ExpectBalanced();
}

TEST_F(StreamInferTest, AnEmptyStreamEndsWithOk) {
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  stream->WritesDone();
  ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

// Every second request is refused because its id is too long. Parsing it takes long enough for
// writes to end in that time.
TEST_F(StreamInferTest, AnswersMoreRequestsThanThePipelineLimit) {
  constexpr int kRequests = 64 * kMaxPipelined;
  const auto id = [](int i) { return absl::StrCat(i, std::string(i % 2 * 30'000, 'x')); };
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  std::thread writer([&] {
    for (int i = 0; i < kRequests; ++i) stream->Write(Named(id(i), {i % 258}));
    stream->WritesDone();
  });
  std::set<std::string> answered;
  ModelStreamInferResponse response;
  int refused = 0;
  while (stream->Read(&response)) {
    if (!response.error_message().empty()) ++refused;
    answered.insert(response.infer_response().id());
  }
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answered.size(), static_cast<size_t>(kRequests));
  EXPECT_EQ(refused, kRequests / 2);
}

// A few replies fill a message of the largest size, and each ended reply frees its part.
TEST(StreamInferBytesTest, ALongLivedStreamKeepsReading) {
  TestDaemon::Options options;
  options.server.grpc.max_message_bytes = 16 << 10;
  TestDaemon daemon(options);
  const auto stub = daemon.Stub();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto stream = stub->ModelStreamInfer(&context);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(stream->Write(Named(absl::StrCat(i), {1, 2})));
    ModelStreamInferResponse response;
    ASSERT_TRUE(stream->Read(&response)) << i;
    EXPECT_EQ(response.error_message(), "");
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(StreamInferTest, ReadsAtMostThePipelineLimitOfRequests) {
  Gate gate;
  daemon_.backend().OnReplay([&](const RecordedBatch&) {
    gate.Pass();
    return absl::OkStatus();
  });
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  std::thread writer([&] {
    for (int i = 0; i < 3 * kMaxPipelined; ++i) stream->Write(Named("", {1}));
    stream->WritesDone();
  });
  gate.AwaitArrivals(1);
  daemon_.AwaitMetric("sluice_admitted_total", kMaxPipelined);
  // If the daemon reads a further request, it does so within these round trips.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(daemon_.Metric("sluice_admitted_total"), kMaxPipelined);
  }
  gate.Open();
  ModelStreamInferResponse response;
  int answered = 0;
  while (stream->Read(&response)) ++answered;
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answered, 3 * kMaxPipelined);
}

TEST_F(StreamInferTest, CancellingTheStreamCancelsItsRequests) {
  Gate gate;
  daemon_.backend().OnReplay([&](const RecordedBatch&) {
    gate.Pass();
    return absl::OkStatus();
  });
  grpc::ClientContext context;
  auto stream = stub_->ModelStreamInfer(&context);
  stream->Write(Named("", {1}));
  gate.AwaitArrivals(1);
  // These requests wait in the queue after the first. When none waits, the daemon has processed the
  // cancellation.
  for (int i = 1; i < 10; ++i) stream->Write(Named("", {1}));
  daemon_.AwaitMetric("sluice_admitted_total", 10);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  daemon_.AwaitMetric("sluice_requests_waiting", 0);
  gate.Open();
  daemon_.AwaitMetric("sluice_requests_total", 10, "code=\"CANCELLED\"");
  daemon_.ExpectBalanced();
}

TEST_F(StreamInferTest, AStreamEndsAtItsDeadline) {
  Gate gate;
  daemon_.backend().OnReplay([&](const RecordedBatch&) {
    gate.Pass();
    return absl::OkStatus();
  });
  const auto stub = daemon_.ConnectedStub();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
  auto stream = stub->ModelStreamInfer(&context);
  stream->Write(Named("", {1}));
  gate.AwaitArrivals(1);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  gate.Open();
  daemon_.AwaitMetric("sluice_requests_running", 0);
  daemon_.ExpectBalanced();
}

// The tensors of both requests contradict their shapes; only the first message is parsed.
TEST(StreamRateTest, TheRateIsCheckedBeforeAMessageIsParsed) {
  TestDaemon::Options options;
  options.server.rate = {.requests_per_second = 0.001, .requests_burst = 1};
  const TestDaemon daemon(options);
  const auto stub = daemon.Stub();
  grpc::ClientContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  inference::ModelInferRequest request = IdsRequest({1, 2});
  request.mutable_inputs(0)->set_shape(0, 7);
  const auto error_of = [&](const std::string& id) {
    request.set_id(id);
    EXPECT_TRUE(stream->Write(request));
    ModelStreamInferResponse response;
    EXPECT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.infer_response().id(), id);
    return response.error_message();
  };
  EXPECT_THAT(error_of("first"), ::testing::Not(HasSubstr("per second")));
  EXPECT_THAT(error_of("second"), HasSubstr("per second"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(StreamInferTest, MalformedMessagesGetAnErrorResponse) {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::GenericStub generic(daemon_.Channel());
  auto stream =
      generic.PrepareCall(&context, "/inference.GRPCInferenceService/ModelStreamInfer", &queue);
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  stream->StartCall(nullptr);
  ASSERT_TRUE(await());
  const grpc::Slice slice("\xff\xff");
  stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ASSERT_TRUE(await());
  grpc::ByteBuffer bytes;
  stream->Read(&bytes, nullptr);
  ASSERT_TRUE(await());
  ModelStreamInferResponse response;
  ASSERT_TRUE(
      grpc::SerializationTraits<ModelStreamInferResponse>::Deserialize(&bytes, &response).ok());
  EXPECT_THAT(response.error_message(), HasSubstr("well-formed"));
  stream->WritesDone(nullptr);
  ASSERT_TRUE(await());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  ASSERT_TRUE(await());
  EXPECT_TRUE(status.ok());
}

}  // namespace
}  // namespace sluice
