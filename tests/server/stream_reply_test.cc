// How streams answer, over real sockets, with the test in the engine's place.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/inference.grpc.pb.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/reply.h"
#include "server/reply_thread.h"
#include "server/server.h"
#include "server/statistics.h"
#include "tests/server/joined_answer.h"
#include "tests/server/messages.h"
#include "tests/server/scripted_engine.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using ::testing::HasSubstr;
using testing::IdsRequest;
using ::testing::IsEmpty;
using testing::JoinedAnswer;
using testing::RawOutput;
using testing::ScriptedEngine;
using testing::SetInt;
using testing::Values;

ModelInferRequest Generating(const std::string& id, int max_tokens) {
  ModelInferRequest request = IdsRequest({1, 2});
  request.set_id(id);
  SetInt(&request, "max_tokens", max_tokens);
  return request;
}

Reply Finished(int rows) {
  Reply reply;
  reply.finish.assign(rows, FinishReason::kLength);
  return reply;
}

bool IsFinal(const ModelStreamInferResponse& response) {
  return response.infer_response().parameters().at("triton_final_response").bool_param();
}

std::vector<int32_t> IdsOf(const ModelStreamInferResponse& response) {
  return Values<int32_t>(RawOutput(response.infer_response(), "output_ids"));
}

class StreamReplyTest : public ::testing::Test {
 protected:
  using Stream = grpc::ClientReaderWriter<ModelInferRequest, ModelStreamInferResponse>;

  StreamReplyTest()
      : log_(*Log::Create({.level = "error"})), server_(StartServer()), stub_(MakeStub()) {}

  std::unique_ptr<Stream> Open() { return stub_->ModelStreamInfer(&context_); }

  // A step of the engine that brings `ids` for row 0.
  static void Tell(const ScriptedEngine::Submitted& to, int* index, std::vector<int32_t> ids) {
    std::vector<GeneratedToken> tokens;
    for (int32_t id : ids) tokens.push_back({0, (*index)++, id, -1.0f});
    to.sink->OnTokens(tokens.data(), static_cast<int>(tokens.size()));
  }

  // Tells `ids` one by one, and after each reads the response that it makes.
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
  ReplyThread replies_;
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

  // With the smallest window that HTTP/2 has, so that little is enough to fill it.
  std::unique_ptr<inference::GRPCInferenceService::Stub> MakeStub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return inference::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->grpc_port()),
                                  grpc::InsecureChannelCredentials(), arguments));
  }
};

TEST_F(StreamReplyTest, EachStepIsAResponseForAPromptReader) {
  const auto stream = Open();
  stream->Write(Generating("a", 5));
  const ScriptedEngine::Submitted a = engine_.Await("a");
  TellAndRead(a, {'h', 'e', 'y'}, stream.get());
  a.sink->OnDone(absl::OkStatus(), Finished(1), {});
  ModelStreamInferResponse last;
  ASSERT_TRUE(stream->Read(&last));
  EXPECT_TRUE(IsFinal(last));
  EXPECT_THAT(IdsOf(last), IsEmpty());
  EXPECT_EQ(RawOutput(last.infer_response(), "finish_reason"), testing::BytesElement("length"));
  EXPECT_EQ(last.infer_response().id(), "a");
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&last));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(StreamReplyTest, AnEmptyFinalResponseOnRequest) {
  const auto stream = Open();
  ModelInferRequest request = Generating("a", 5);
  (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  stream->Write(request);
  const ScriptedEngine::Submitted a = engine_.Await("a");
  TellAndRead(a, {'x'}, stream.get());
  a.sink->OnDone(absl::OkStatus(), Finished(1), {});
  ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_FALSE(IsFinal(response));
  EXPECT_EQ(RawOutput(response.infer_response(), "finish_reason"), testing::BytesElement("length"));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(IsFinal(response));
  EXPECT_EQ(response.infer_response().outputs_size(), 0);
  EXPECT_EQ(response.infer_response().model_name(), "text");
  EXPECT_EQ(response.infer_response().id(), "a");
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
}

TEST_F(StreamReplyTest, WhatGeneratesOneTokenHasOneResponse) {
  const auto stream = Open();
  stream->Write(Generating("a", 1));
  const ScriptedEngine::Submitted a = engine_.Await("a");
  int index = 0;
  Tell(a, &index, {'x'});
  a.sink->OnDone(absl::OkStatus(), Finished(1), {});
  ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(IsFinal(response));
  EXPECT_EQ(IdsOf(response), std::vector<int32_t>{'x'});
}

TEST_F(StreamReplyTest, AnErrorEndsTheRequestAndNotTheStream) {
  const auto stream = Open();
  stream->Write(Generating("a", 5));
  const ScriptedEngine::Submitted a = engine_.Await("a");
  TellAndRead(a, {'x', 'y'}, stream.get());
  a.sink->OnDone(absl::InternalError("not finite"), {}, {});
  ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(IsFinal(response));
  EXPECT_EQ(response.error_message(), "not finite");
  EXPECT_EQ(response.infer_response().id(), "a");
  const auto& parameters = response.infer_response().parameters();
  EXPECT_EQ(parameters.at("error_code").string_param(), "INTERNAL");
  EXPECT_EQ(parameters.count("retry_pushback_ms"), 0u);

  engine_.RefuseAll(absl::ResourceExhaustedError("full"));
  stream->Write(Generating("b", 5));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(IsFinal(response));
  const auto& refused = response.infer_response().parameters();
  EXPECT_EQ(refused.at("error_code").string_param(), "RESOURCE_EXHAUSTED");
  EXPECT_GE(refused.at("retry_pushback_ms").int64_param(), 1);
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

// Steps of several requests in random order and size, read or not at random: each request's responses
// together are its unary answer.
TEST_F(StreamReplyTest, AnyInterleavingSaysTheSameAsUnary) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto stream = Open();
  struct Running {
    ScriptedEngine::Submitted submitted;
    int index = 0;
    std::vector<GeneratedToken> told;
  };
  std::map<std::string, Running> running;
  std::map<std::string, JoinedAnswer> expected, joined;
  size_t left = 0;
  for (const char* id : {"a", "b", "c", "d"}) {
    stream->Write(Generating(id, 60));
    running[id].submitted = engine_.Await(id);
    left += 1;
  }
  size_t unread = left;  // last responses
  const auto read = [&] {
    ModelStreamInferResponse response;
    ASSERT_TRUE(stream->Read(&response));
    unread -= IsFinal(response);
    joined[response.infer_response().id()].Add(response.infer_response());
  };
  while (left > 0) {
    auto& [id, request] = *std::next(running.begin(), static_cast<int64_t>(random() % 4));
    if (request.submitted.sink == nullptr) continue;
    const int count = std::min<int>(1 + static_cast<int>(random() % 3), 60 - request.index);
    std::vector<int32_t> ids(count);
    for (int32_t& token : ids) token = static_cast<int32_t>(random() % 256);
    for (int i = 0; i < count; ++i) request.told.push_back({0, request.index + i, ids[i], -1.0f});
    Tell(request.submitted, &request.index, ids);
    if (request.index == 60) {
      request.submitted.sink->OnDone(absl::OkStatus(), Finished(1), {});
      request.submitted.sink.reset();
      --left;
    } else if (random() % 2 == 0) {
      read();
    }
  }
  while (unread > 0) read();

  for (auto& [id, request] : running) {
    ReplyBuilder builder(
        {.model = testing::TextModel(),
         .id = id,
         .lengths = {2},
         .outputs = {Output::kOutputIds, Output::kSequenceLength, Output::kLogprobs,
                     Output::kFinishReason, Output::kTextOutput}});
    TokenBuffer tokens;
    tokens.Append(request.told.data(), static_cast<int>(request.told.size()), 0);
    const Reply reply = Finished(1);
    inference::ModelInferResponse unary;
    builder.Build(tokens, &reply, &unary);
    expected[id].Add(unary);
  }
  EXPECT_EQ(joined, expected);
}

TEST_F(StreamReplyTest, ACallerWhoLeavesCancelsWhatIsInProgress) {
  const auto stream = Open();
  std::vector<ScriptedEngine::Submitted> requests;
  for (const char* id : {"a", "b"}) {
    stream->Write(Generating(id, 5));
    requests.push_back(engine_.Await(id));
  }
  TellAndRead(requests[0], {'x'}, stream.get());
  requests[0].sink->OnDone(absl::OkStatus(), Finished(1), {});
  ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  context_.TryCancel();
  engine_.AwaitCancelled(1);
  // What still comes finds nobody.
  int index = 0;
  Tell(requests[1], &index, {'y'});
  requests[1].sink->OnDone(absl::CancelledError("cancelled"), {}, {});
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(engine_.cancelled(), 1u) << "the answered request is none of them";
}

// A row of candidates is as wide as the vocabulary, so that some tokens fill any window.
ModelInferRequest Wide(const std::string& id) {
  ModelInferRequest request = Generating(id, 60);
  SetInt(&request, "num_top_logprobs", 258);
  return request;
}

class WideTokens {
 public:
  void Tell(const ScriptedEngine::Submitted& to, int index) {
    const GeneratedToken token = {0, index, 'x', -1.0f, ids_.data(), logprobs_.data()};
    to.sink->OnTokens(&token, 1);
  }

 private:
  std::vector<int32_t> ids_ = std::vector<int32_t>(258, 7);
  std::vector<float> logprobs_ = std::vector<float>(258, -1);
};

class StalledReaderTest : public StreamReplyTest {
 protected:
  // Returns when the server has given the reader up and the engine has ended its requests.
  void Stall(Stream* stream) {
    constexpr int kRequests = 3;
    std::vector<ScriptedEngine::Submitted> requests;
    for (int i = 0; i < kRequests; ++i) {
      stream->Write(Wide(absl::StrCat(i)));
      requests.push_back(engine_.Await(absl::StrCat(i)));
    }
    // Tokens come until it was noticed, whatever number of them fits into the window.
    WideTokens tokens;
    for (int index = 0; engine_.cancelled() == 0; ++index) {
      for (const ScriptedEngine::Submitted& request : requests) tokens.Tell(request, index);
      clock_.Advance(std::chrono::milliseconds(30));
    }
    engine_.AwaitCancelled(kRequests);
    for (const ScriptedEngine::Submitted& request : requests) {
      request.sink->OnDone(absl::CancelledError("cancelled"), {}, {});
    }
  }
};

TEST_F(StalledReaderTest, IsGivenUpAndToldSo) {
  const auto stream = Open();
  Stall(stream.get());
  ModelStreamInferResponse response;
  while (stream->Read(&response)) EXPECT_THAT(response.error_message(), IsEmpty());
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("server.grpc.stream_stall_timeout_us"));
}

TEST_F(StalledReaderTest, HoldsNoShutdownUp) {
  const auto stream = Open();
  Stall(stream.get());
  server_.reset();  // though the response in flight was never taken
  EXPECT_EQ(engine_.cancelled(), 3u);
}

TEST_F(StreamReplyTest, AReaderThatReadsIsNeverGivenUp) {
  const auto stream = Open();
  stream->Write(Wide("a"));
  const ScriptedEngine::Submitted a = engine_.Await("a");
  WideTokens tokens;
  for (int index = 0; index < 60; ++index) {
    tokens.Tell(a, index);
    ModelStreamInferResponse response;
    ASSERT_TRUE(stream->Read(&response));
    clock_.Advance(std::chrono::seconds(29));  // per response, and not in all
  }
  EXPECT_EQ(engine_.cancelled(), 0u);
  a.sink->OnDone(absl::OkStatus(), Finished(1), {});
}

TEST_F(StreamReplyTest, ASlowReaderGetsFewerAndLongerResponses) {
  const auto stream = Open();
  constexpr int kRequests = 40;
  WideTokens tokens;
  std::vector<ScriptedEngine::Submitted> requests;
  for (int i = 0; i < kRequests; ++i) {
    stream->Write(Wide(absl::StrCat(i)));
    requests.push_back(engine_.Await(absl::StrCat(i)));
    // More than a window in all, while nobody reads.
    for (int index = 0; index < 60; ++index) tokens.Tell(requests[i], index);
    requests[i].sink->OnDone(absl::OkStatus(), Finished(1), {});
  }
  int responses = 0, last = 0;
  ModelStreamInferResponse response;
  while (last < kRequests) {
    ASSERT_TRUE(stream->Read(&response));
    ++responses;
    last += IsFinal(response);
  }
  // Those that could not be written while the window was full came whole.
  EXPECT_LT(responses, kRequests * 60 / 2);
}

}  // namespace
}  // namespace sluice
