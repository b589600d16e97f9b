// Tests of long messages, which are read and encoded outside gRPC's threads.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "base/interruption.h"
#include "base/work_memory.h"
#include "server/common/callback_times.h"
#include "server/common/status.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/gate.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::TestDaemon;
using testing::TextRequest;
using testing::Trailer;

// Long enough to be encoded on another thread.
const std::string kLongText(5000, 'x');

// Encodes any text as the token 7, after it has waited for the test or for an interruption.
class SlowTokenizer final : public Tokenizer {
 public:
  struct State {
    std::atomic<int> begun = 0;
    std::atomic<int> interrupted = 0;
    std::atomic<bool> open = false;
    std::atomic<int64_t> memory = 0;  // of the work on a text
  };
  explicit SlowTokenizer(std::shared_ptr<State> state) : state_(std::move(state)) {}

  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view, int64_t) const override {
    EXPECT_FALSE(CallbackTimes::IsInCallback());
    WorkMemory memory;
    if (absl::Status status = memory.Hold(state_->memory); !status.ok()) return status;
    ++state_->begun;
    while (!state_->open) {
      if (absl::Status status = CheckInterruption(); !status.ok()) {
        ++state_->interrupted;
        return status;
      }
      std::this_thread::yield();
    }
    return std::vector<int32_t>{7};
  }
  int64_t longest_token_bytes() const override { return 1024; }
  std::string Decode(std::span<const int32_t>) const override { return ""; }

 private:
  const std::shared_ptr<State> state_;
};

class PreparationTest : public ::testing::Test {
 protected:
  void Start(const std::string& callers = "") {
    TestDaemon::Options options = TestDaemon::Options::WithHttp();
    auto model = std::make_shared<Model>();
    model->name = "text";
    model->config = testing::TextModel()->config;
    model->tokenizer = std::make_unique<SlowTokenizer>(state_);
    options.model = std::move(model);
    if (!callers.empty()) {
      options.server.auth.callers_file = directory_.File("callers");
      WriteTestFile(options.server.auth.callers_file, callers);
    }
    daemon_ = std::make_unique<TestDaemon>(options);
  }

  // A call on its own connection with a text of kLongText's length.
  struct Call {
    grpc::ClientContext context;
    ModelInferResponse response;
    std::future<grpc::Status> status;
  };
  std::unique_ptr<Call> Send(const std::string& token = "") {
    auto call = std::make_unique<Call>();
    if (!token.empty()) call->context.AddMetadata("authorization", "Bearer " + token);
    return Send(std::move(call));
  }
  std::unique_ptr<Call> Send(std::unique_ptr<Call> call) {
    call->status = std::async(std::launch::async, [this, raw = call.get()] {
      return daemon_->Infer(TextRequest(kLongText), &raw->response, &raw->context);
    });
    return call;
  }

  template <typename Condition>
  static void Await(Condition condition) {
    while (!condition()) std::this_thread::yield();
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<SlowTokenizer::State> state_ = std::make_shared<SlowTokenizer::State>();
  std::unique_ptr<TestDaemon> daemon_;
};

TEST_F(PreparationTest, OtherCallsAreAnsweredWhileManyTextsAreEncoded) {
  Start();
  std::vector<std::unique_ptr<Call>> calls(64);
  for (auto& call : calls) call = Send();
  Await([&] { return state_->begun >= 2; });
  for (int i = 0; i < 20; ++i) {
    ModelInferResponse response;
    EXPECT_TRUE(daemon_->Infer(IdsRequest({1, 2}), &response).ok());
  }
  state_->open = true;
  for (auto& call : calls) EXPECT_TRUE(call->status.get().ok());
  daemon_->ExpectBalanced();
}

TEST_F(PreparationTest, ATextIsRefusedIfItsEncodingHasNoMemory) {
  Start();
  const auto limit =
      static_cast<int64_t>(daemon_->Metric("sluice_memory_limit_bytes", "use=\"parsed_requests\""));
  ASSERT_GT(limit, 0);
  state_->memory = limit / 10 * 7 + WorkMemoryAccount::kFreeBytes;
  const auto first = Send();
  Await([&] { return state_->begun == 1; });
  const auto second = Send();
  EXPECT_EQ(second->status.get().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Trailer(second->context, kReasonTrailer), "memory");
  state_->open = true;
  EXPECT_TRUE(first->status.get().ok());
  // An answer may come before the memory of its request is returned.
  const auto returned = [&] {
    return daemon_->Metric("sluice_memory_bytes", "use=\"parsed_requests\"") == 0;
  };
  Await(returned);
  state_->memory = 2 * limit;
  const auto third = Send();
  const grpc::Status status = third->status.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("Send a smaller request"));
  EXPECT_EQ(Trailer(third->context, kReasonTrailer), "request");
  Await(returned);
  state_->memory = limit / 10 * 7;
  EXPECT_TRUE(Send()->status.get().ok()) << "the memory was returned";
  daemon_->ExpectBalanced();
}

TEST_F(PreparationTest, ACancellationEndsTheEncodingAndNothingIsAdmitted) {
  Start();
  const auto call = Send();
  Await([&] { return state_->begun == 1; });
  call->context.TryCancel();
  EXPECT_EQ(call->status.get().error_code(), grpc::StatusCode::CANCELLED);
  Await([&] { return state_->interrupted == 1; });
  EXPECT_EQ(daemon_->Metric("sluice_admitted_total"), 0);
}

TEST_F(PreparationTest, TheDeadlineEndsTheEncodingAndNothingIsAdmitted) {
  Start();
  auto call = std::make_unique<Call>();
  call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  call->context.set_wait_for_ready(true);
  call = Send(std::move(call));
  EXPECT_EQ(call->status.get().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  Await([&] { return state_->interrupted == state_->begun; });
  EXPECT_EQ(daemon_->Metric("sluice_admitted_total"), 0);
}

TEST_F(PreparationTest, AStreamThatIsCancelledEndsTheEncoding) {
  Start();
  const auto stub = daemon_->Stub();
  grpc::ClientContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(TextRequest(kLongText)));
  Await([&] { return state_->begun == 1; });
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  Await([&] { return state_->interrupted == 1; });
  EXPECT_EQ(daemon_->Metric("sluice_admitted_total"), 0);
}

TEST_F(PreparationTest, AShutdownEndsTheEncoding) {
  Start();
  const auto call = Send();
  Await([&] { return state_->begun == 1; });
  daemon_->StopServer();
  EXPECT_FALSE(call->status.get().ok());
  EXPECT_EQ(state_->interrupted, 1);
}

// The bucket holds at most five tokens. A text of 5000 bytes has at least four.
TEST_F(PreparationTest, ACallerIsChargedForItsTextBeforeEncoding) {
  Start("alice: token:alice-0123456789 tokens_per_second=1e-9 tokens_burst=5");
  state_->open = true;
  auto call = Send("alice-0123456789");
  EXPECT_TRUE(call->status.get().ok()) << "one prompt token and one generated: 2 of 5";
  call = Send("alice-0123456789");
  const grpc::Status status = call->status.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(testing::Trailer(call->context, kReasonTrailer), "rate_limited");
  EXPECT_EQ(state_->begun, 1) << "the second text was not encoded";
  EXPECT_EQ(daemon_->Metric("sluice_rejected_total", "reason=\"rate_limited\""), 1);
}

// The bucket holds at most five tokens. A text of 5000 bytes has at least four.
TEST_F(PreparationTest, ARequestThatIsRefusedBeforeEncodingCostsNothing) {
  Start("anonymous: none tokens_per_second=1e-9 tokens_burst=5");
  state_->open = true;
  ModelInferRequest request = TextRequest(kLongText);
  testing::SetInt(&request, "window_overlap", 1);  // needs other outputs
  ModelInferResponse response;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(daemon_->Infer(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(state_->begun, 0);
  EXPECT_TRUE(Send()->status.get().ok());
}

TEST_F(PreparationTest, OnlyTokensOfAdmittedRequestsAreCounted) {
  Start("anonymous: none tokens_per_second=1000");
  state_->open = true;
  ModelInferRequest request = TextRequest(kLongText);
  testing::AddInput(&request, "candidate_ids", "INT64", {1, 1}, testing::Bytes<int64_t>({9999}));
  ModelInferResponse response;
  EXPECT_EQ(daemon_->Infer(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(state_->begun, 1) << "it was refused after its text was encoded";
  EXPECT_EQ(daemon_->Metric("sluice_caller_tokens_total"), 0);
  EXPECT_TRUE(Send()->status.get().ok());
  daemon_->AwaitMetric("sluice_caller_tokens_total", 2);  // a prompt token and a generated one
}

// Callbacks read only short messages without texts.
TEST_F(PreparationTest, NoCallbackReadsALongMessageOrAText) {
  Start();
  state_->open = true;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto stub = daemon_->Stub();
  for (int i = 0; i < 200; ++i) {
    ModelInferRequest request = TextRequest(std::string(random() % 6000, 'x'));
    if (i % 2 == 0) request = IdsRequest(std::vector<int32_t>(1 + random() % 100'000, 1));
    ModelInferResponse response;
    daemon_->Infer(request, &response);
    inference::ModelReadyRequest question;
    question.set_name(std::string(random() % (4 << 20), 'x'));
    inference::ModelReadyResponse answer;
    grpc::ClientContext context;
    const grpc::Status status = stub->ModelReady(&context, question, &answer);
    EXPECT_TRUE(!status.ok() || question.ByteSizeLong() <= 1 << 20);
  }
  EXPECT_GT(state_->begun, 0);
  EXPECT_LE(CallbackTimes::OfProcess().most_bytes(), CallbackTimes::kMostBytes);
}

TEST_F(PreparationTest, ATextThatIsTooLongInBytesIsNotEncoded) {
  Start();
  ModelInferResponse response;
  const grpc::Status status =
      daemon_->Infer(TextRequest(std::string(64 * 1024 + 1, 'x')), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("has 65537 bytes; the limit is 65536"));
  EXPECT_EQ(state_->begun, 0);
}

}  // namespace
}  // namespace sluice
