// Tests of unary calls whose message or answer is slow.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <list>
#include <thread>

#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using inference::ModelInferResponse;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::TestDaemon;

constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";

TestDaemon::Options Impatient() {
  TestDaemon::Options options;
  options.server.grpc.transfer_timeout_us = 100'000;
  return options;
}

// A call that sends its message only on request.
class SlowCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  SlowCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path)
      : stub_(channel) {
    stub_.PrepareBidiStreamingCall(&context_, path, grpc::StubOptions(), this);
    StartRead(&answer_);
    AddHold();  // without it the call would end with the read
    StartCall();
  }

  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    message_ = grpc::ByteBuffer(&slice, 1);
    StartWriteLast(&message_, grpc::WriteOptions());
  }
  void SendNothing() { StartWritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // Returns whether the call has ended without an answer.
  bool failed() const { return failed_; }

  grpc::Status Wait() {
    RemoveHold();
    return done_.get_future().get();
  }

 private:
  void OnReadDone(bool ok) override { failed_ = !ok; }
  void OnDone(const grpc::Status& status) override { done_.set_value(status); }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
  std::atomic<bool> failed_ = false;
  std::promise<grpc::Status> done_;
};

TEST(StreamedUnaryTest, ACallWhoseMessageDoesNotArriveEnds) {
  TestDaemon daemon(Impatient());
  for (const char* path : {kInfer, "/inference.GRPCInferenceService/ServerLive",
                           "/sluice.admin.v1.Admin/GetBuckets"}) {
    const grpc::Status status = SlowCall(daemon.Channel(), path).Wait();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << path;
    EXPECT_THAT(status.error_message(), HasSubstr("message did not arrive within 100ms"));
  }
  EXPECT_EQ(daemon.Metric("sluice_admitted_total"), 0);
}

// All calls come from one address, so that the oldest ends.
TEST(StreamedUnaryTest, TheOldestOfTooManyWaitingCallsEnds) {
  TestDaemon::Options options = TestDaemon::Options::WithHttp();
  constexpr int kMaxCalls = 16;
  options.server.grpc.max_calls = kMaxCalls;
  TestDaemon daemon(options);
  std::list<SlowCall> calls;
  for (int i = 0; i < kMaxCalls + 1; ++i) calls.emplace_back(daemon.Channel(), kInfer);
  // The server may see the calls in another order.
  auto ended = calls.end();
  while (ended == calls.end()) {
    std::this_thread::yield();
    ended = std::ranges::find_if(calls, &SlowCall::failed);
  }
  const grpc::Status status = ended->Wait();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("server.grpc.max_calls"));
  calls.erase(ended);
  EXPECT_EQ(daemon.Metric("sluice_calls_displaced_total", "message"), 1);
  calls.front().Cancel();
  EXPECT_EQ(calls.front().Wait().error_code(), grpc::StatusCode::CANCELLED);
  calls.back().Send(IdsRequest({1, 2}).SerializeAsString());
  const grpc::Status served = calls.back().Wait();
  EXPECT_TRUE(served.ok()) << served.error_message();
  for (auto call = std::next(calls.begin()); call != std::prev(calls.end()); ++call) {
    call->Cancel();
    call->Wait();
  }
}

TEST(StreamedUnaryTest, ACallWithoutAMessageIsInvalid) {
  TestDaemon daemon;
  SlowCall call(daemon.Channel(), kInfer);
  call.SendNothing();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(StreamedUnaryTest, ALateMessageIsAnsweredAndDelaysNoOtherCall) {
  TestDaemon daemon;
  SlowCall call(daemon.Channel(), kInfer);
  ModelInferResponse response;
  EXPECT_TRUE(daemon.Infer(IdsRequest({1}), &response).ok()) << "it delays no other call";
  call.Send(IdsRequest({1, 2}).SerializeAsString());
  EXPECT_TRUE(call.Wait().ok());
  daemon.ExpectBalanced();
}

TEST(StreamedUnaryTest, ACallCancelledBeforeItsMessageIsNotAdmitted) {
  TestDaemon daemon;
  SlowCall call(daemon.Channel(), kInfer);
  call.Cancel();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(daemon.Metric("sluice_admitted_total"), 0);
}

TEST(StreamedUnaryTest, TheTransferTimeoutExcludesTheModelsTime) {
  Gate gate;
  TestDaemon daemon(Impatient());
  daemon.backend().OnReplay([&gate](const RecordedBatch&) {
    gate.Pass();
    return absl::OkStatus();
  });
  std::future<grpc::Status> running = std::async(std::launch::async, [&daemon] {
    ModelInferResponse response;
    return daemon.Infer(IdsRequest({1}), &response);
  });
  gate.AwaitArrivals(1);
  // The other call runs while the server waits for this call's message.
  EXPECT_FALSE(SlowCall(daemon.Channel(), kInfer).Wait().ok());
  gate.Open();
  EXPECT_TRUE(running.get().ok());
}

}  // namespace
}  // namespace sluice
