// Tests of callers that read responses late or never, over real sockets. The test acts as the
// engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/common/callback_times.h"
#include "tests/server/inference/stream_fixture.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using testing::Finished;
using testing::Generating;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsFinal;
using testing::ScriptedEngine;
using testing::SetInt;

constexpr std::chrono::seconds kStallTimeout(30);  // the default of stream_stall_timeout_us

class Reached : public Delivery {
 public:
  void Deliver() override { reached_.set_value(); }
  void Await() { reached_.get_future().wait(); }

 private:
  std::promise<void> reached_;
};

class SlowReaderTest : public testing::StreamTest {
 protected:
  // Waits until the reply thread has made all deliveries that are due.
  void Settle() {
    for (int i = 0; i < 2; ++i) {  // due deliveries come after posted ones
      const auto reached = std::make_shared<Reached>();
      replies_.OfNextCall()->Post(reached);
      reached->Await();
    }
  }

  // Advances the clock until a request whose response has not started is cancelled.
  void AdvanceUntilGivenUp() {
    while (engine_.cancelled() == 0) {
      clock_.Advance(kStallTimeout / 3);
      Settle();
    }
  }
};

TEST_F(SlowReaderTest, AnIdleStreamIsNotStalled) {
  const auto written = [] {
    return CallbackTimes::OfProcess().Of(CallbackTimes::Event::kWritten).all;
  };
  const uint64_t before = written();
  const auto stream = Open();
  stream->Write(Generating("a", 5));
  const ScriptedEngine::Submitted a = engine_.Await("a");
  const MonoTime start = clock_.Now();
  int index = 0;
  ModelStreamInferResponse response;
  for (int i = 0; i < 2; ++i) {
    Tell(a, &index, {'h'});
    ASSERT_TRUE(stream->Read(&response));
  }
  while (written() < before + 2) std::this_thread::yield();
  clock_.AwaitWaiter(start + kStallTimeout);
  clock_.Advance(2 * kStallTimeout);
  Settle();
  EXPECT_EQ(engine_.cancelled(), 0u);
  Tell(a, &index, {'y'});
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_FALSE(IsFinal(response));
  a.sink->OnDone(absl::OkStatus(), Finished(1), {});
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(IsFinal(response));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// A request for candidates over the whole vocabulary. A few of its tokens fill any window.
ModelInferRequest Wide(const std::string& id) {
  ModelInferRequest request = Generating(id, 60);
  SetInt(&request, "num_top_logprobs", 258);
  return request;
}

class WideTokens {
 public:
  // Generates the tokens in [index, end) in one step.
  void Tell(const ScriptedEngine::Submitted& to, int index, int end) {
    std::vector<GeneratedToken> tokens;
    for (; index < end; ++index) {
      tokens.push_back({0, index, 'x', -1.0f, ids_.data(), logprobs_.data()});
    }
    to.sink->OnTokens(tokens.data(), static_cast<int>(tokens.size()));
  }
  void Tell(const ScriptedEngine::Submitted& to, int index) { Tell(to, index, index + 1); }

 private:
  std::vector<int32_t> ids_ = std::vector<int32_t>(258, 7);
  std::vector<float> logprobs_ = std::vector<float>(258, -1);
};

class StalledReaderTest : public SlowReaderTest {
 protected:
  // Generates tokens until the reader times out. Returns when the engine has ended its requests.
  void Stall(Stream* stream) {
    constexpr int kRequests = 3;
    std::vector<ScriptedEngine::Submitted> requests;
    for (int i = 0; i < kRequests; ++i) {
      stream->Write(Wide(absl::StrCat(i)));
      requests.push_back(engine_.Await(absl::StrCat(i)));
    }
    // Generates tokens until the server notices; the window may hold many of them.
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

  // Makes a reader time out after all its requests have ended.
  void StallAtTheEnd(Stream* stream) {
    for (const char* id : {"a", "b", "c", "d"}) {
      stream->Write(Wide(id));
      const ScriptedEngine::Submitted request = engine_.Await(id);
      WideTokens().Tell(request, 0, 60);
      request.sink->OnDone(absl::OkStatus(), Finished(1), {});
    }
    AdvanceUntilGivenUp();
  }
};

TEST_F(StalledReaderTest, EndsWithResourceExhausted) {
  const auto stream = Open();
  Stall(stream.get());
  ModelStreamInferResponse response;
  while (stream->Read(&response)) EXPECT_THAT(response.error_message(), IsEmpty());
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("server.grpc.stream_stall_timeout"));
  EXPECT_EQ(context_.GetServerTrailingMetadata().find("sluice-reason")->second, "stream_stalled");
}

TEST_F(StalledReaderTest, DoesNotDelayAShutdown) {
  const auto stream = Open();
  Stall(stream.get());
  server_.reset();  // returns although the response in flight was never read
  EXPECT_EQ(engine_.cancelled(), 3u);
}

TEST_F(StalledReaderTest, AlsoEndsAfterTheLastToken) {
  const auto stream = Open();
  StallAtTheEnd(stream.get());
  ModelStreamInferResponse response;
  while (stream->Read(&response)) EXPECT_THAT(response.error_message(), IsEmpty());
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(StalledReaderTest, IsCutOffIfItDoesNotReadTheEnd) {
  const auto stream = Open();
  StallAtTheEnd(stream.get());
  clock_.Advance(kStallTimeout);
  clock_.AwaitWaiter(MonoTime::max());  // no timer runs any more
  ModelStreamInferResponse response;
  while (stream->Read(&response)) continue;
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(SlowReaderTest, TimesOutOnAResponseWrittenWhileTheTimerRan) {
  const auto stream = Open();
  stream->Write(Wide("first"));
  const ScriptedEngine::Submitted first = engine_.Await("first");
  WideTokens tokens;
  tokens.Tell(first, 0);
  ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));  // the timer runs from here on
  clock_.Advance(kStallTimeout / 3);
  std::vector<ScriptedEngine::Submitted> requests;
  for (const char* id : {"a", "b", "c", "d"}) {
    stream->Write(Wide(id));
    requests.push_back(engine_.Await(id));
    tokens.Tell(requests.back(), 0, 60);
  }
  // gRPC decides which of them does not fit and when its write starts.
  AdvanceUntilGivenUp();
  requests.push_back(first);
  for (const auto& request : requests) request.sink->OnDone(absl::CancelledError(""), {}, {});
}

TEST_F(SlowReaderTest, AReaderThatKeepsReadingNeverTimesOut) {
  const auto stream = Open();
  stream->Write(Wide("a"));
  const ScriptedEngine::Submitted a = engine_.Await("a");
  WideTokens tokens;
  for (int index = 0; index < 60; ++index) {
    tokens.Tell(a, index);
    ModelStreamInferResponse response;
    ASSERT_TRUE(stream->Read(&response));
    // The timeout applies to each response, not to their sum.
    clock_.Advance(std::chrono::seconds(29));
  }
  EXPECT_EQ(engine_.cancelled(), 0u);
  a.sink->OnDone(absl::OkStatus(), Finished(1), {});
}

TEST_F(SlowReaderTest, ASlowReaderGetsFewerAndLongerResponses) {
  const auto stream = Open();
  constexpr int kRequests = 40;
  WideTokens tokens;
  std::vector<ScriptedEngine::Submitted> requests;
  for (int i = 0; i < kRequests; ++i) {
    stream->Write(Wide(absl::StrCat(i)));
    requests.push_back(engine_.Await(absl::StrCat(i)));
    // Together these exceed the window, and the caller does not read.
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
  // Tokens that waited for the full window arrived in one response.
  EXPECT_LT(responses, kRequests * 60 / 2);
}

}  // namespace
}  // namespace sluice
