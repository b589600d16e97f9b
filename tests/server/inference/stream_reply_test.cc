// Tests of the answers of streams, over real sockets. The test acts as the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/protocol/reply/reply.h"
#include "tests/server/calls/joined_answer.h"
#include "tests/server/inference/stream_fixture.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using testing::Finished;
using testing::Generating;
using ::testing::HasSubstr;
using testing::IdsOf;
using testing::IdsRequest;
using ::testing::IsEmpty;
using testing::IsFinal;
using testing::JoinedAnswer;
using testing::RawOutput;
using testing::ScriptedEngine;
using testing::SetInt;

class StreamReplyTest : public testing::StreamTest {};

TEST_F(StreamReplyTest, APromptReaderGetsOneResponsePerStep) {
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

TEST_F(StreamReplyTest, SendsAnEmptyFinalResponseOnRequest) {
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

TEST_F(StreamReplyTest, ARequestForOneTokenGetsOneResponse) {
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

TEST_F(StreamReplyTest, AnErrorEndsTheRequestButNotTheStream) {
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
  EXPECT_EQ(parameters.at("error_reason").string_param(), "internal");
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

// Runs steps of several requests in random order and size, and reads at random. The joined
// responses of each request equal its unary answer.
TEST_F(StreamReplyTest, AnyInterleavingEqualsTheUnaryAnswers) {
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
  size_t unread = left;  // the number of last responses to read
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
    const auto spec = std::make_shared<RequestSpec>();
    spec->model = testing::TextModel();
    spec->id = id;
    spec->lengths = {2};
    ReplyBuilder builder(
        {.request = spec,
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

TEST_F(StreamReplyTest, ACancelledStreamCancelsItsRequestsInProgress) {
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
  // Later results find no call.
  int index = 0;
  Tell(requests[1], &index, {'y'});
  requests[1].sink->OnDone(absl::CancelledError("cancelled"), {}, {});
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(engine_.cancelled(), 1u) << "the answered request is not cancelled";
}

}  // namespace
}  // namespace sluice
