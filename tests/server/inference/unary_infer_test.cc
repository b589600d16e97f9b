// Tests of ModelInfer over real sockets.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/common/status.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::RawOutput;
using testing::SetInt;
using testing::TestDaemon;
using testing::Trailer;
using testing::Values;

// Returns the tokens that the fake model generates for `prompt`.
std::vector<int32_t> GreedyTokens(std::vector<int32_t> prompt, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(fake::Draw(prompt, {}, 258).token);
    prompt.push_back(tokens.back());
  }
  return tokens;
}

TEST(UnaryInferTest, ReturnsTheModelsTokens) {
  TestDaemon daemon;
  ModelInferRequest request = IdsRequest({3, 1, 4, 1, 5});
  request.set_id("r1");
  SetInt(&request, "max_tokens", 6);
  ModelInferResponse response;
  const grpc::Status status = daemon.Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.id(), "r1");
  EXPECT_EQ(response.model_name(), "text");
  EXPECT_EQ(Values<int32_t>(RawOutput(response, "output_ids")), GreedyTokens({3, 1, 4, 1, 5}, 6));
  daemon.ExpectBalanced();
}

TEST(UnaryInferTest, EveryOutputArrivesUnchanged) {
  TestDaemon daemon;
  ModelInferRequest request = IdsRequest({3, 1, 4});
  SetInt(&request, "num_top_logprobs", 2);
  for (const char* name : {"logits", "prompt_logprobs", "xsa_cos_sim", "top_ids"}) {
    request.add_outputs()->set_name(name);
  }
  ModelInferResponse response;
  ASSERT_TRUE(daemon.Infer(request, &response).ok());
  const std::vector<int32_t> prompt = {3, 1, 4};
  const std::vector<float> logits = Values<float>(RawOutput(response, "logits"));
  ASSERT_EQ(logits.size(), 258u);
  for (int64_t id = 0; id < 258; ++id) EXPECT_EQ(logits[id], fake::Logit(prompt, id));
  const std::span<const int32_t> all(prompt);
  EXPECT_THAT(
      Values<float>(RawOutput(response, "prompt_logprobs")),
      ::testing::ElementsAre(0, fake::Logprob(all.first(1), 1), fake::Logprob(all.first(2), 4)));
  EXPECT_EQ(Values<float>(RawOutput(response, "xsa_cos_sim"))[(1 * 3 + 2) * 3 + 1],
            fake::CosSim(1, 4, 2, 1));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "top_ids")),
              ::testing::ElementsAre(fake::TopId(prompt, 0, 258), fake::TopId(prompt, 1, 258)));
}

TEST(UnaryInferTest, ADrawnSeedRepeatsTheAnswer) {
  TestDaemon daemon;
  ModelInferRequest request = IdsRequest({3, 1, 4});
  SetInt(&request, "max_tokens", 20);
  (*request.mutable_parameters())["temperature"].set_double_param(1);
  ModelInferResponse first, again, other;
  ASSERT_TRUE(daemon.Infer(request, &first).ok());
  ASSERT_TRUE(daemon.Infer(request, &other).ok());
  const int64_t seed = first.parameters().at("seed").int64_param();
  EXPECT_NE(seed, other.parameters().at("seed").int64_param());
  SetInt(&request, "seed", seed);
  ASSERT_TRUE(daemon.Infer(request, &again).ok());
  EXPECT_EQ(RawOutput(first, "output_ids"), RawOutput(again, "output_ids"));
  EXPECT_NE(RawOutput(first, "output_ids"), RawOutput(other, "output_ids"));
  EXPECT_EQ(again.parameters().count("seed"), 0u);
}

TEST(UnaryInferTest, MalformedProtobufIsInvalidAndNeverQueued) {
  TestDaemon daemon;
  const auto channel = daemon.Channel();
  const std::string good = IdsRequest({1}).SerializeAsString();
  for (const std::string& bytes : {std::string("\xff\xff\xff"), good.substr(0, good.size() - 1),
                                   std::string(10'000, '\x0a'), std::string("\x0a\x02\xc3\x28")}) {
    grpc::ClientContext context;
    const grpc::Status status =
        testing::RawCall(channel, "/inference.GRPCInferenceService/ModelInfer", bytes, &context);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("inference.ModelInferRequest"));
    EXPECT_EQ(Trailer(context, kReasonTrailer), "malformed");
  }
  EXPECT_EQ(daemon.Metric("sluice_admitted_total"), 0);
  EXPECT_EQ(daemon.Metric("sluice_rejected_total", "reason=\"malformed\""), 4);
}

TEST(UnaryInferTest, AnErrorNamesThePartOfTheRequestThatIsWrong) {
  struct Row {
    const char* reason;
    const char* message;
    std::function<void(ModelInferRequest*)> change;
  };
  const Row rows[] = {
      {"parameter", "top_k is -1", [](auto* request) { SetInt(request, "top_k", -1); }},
      {"input", "input input_ids",
       [](auto* request) { request->mutable_inputs(0)->set_datatype("FP64"); }},
      {"output", "output \"none\"",
       [](auto* request) { request->add_outputs()->set_name("none"); }},
      {"request", "id has", [](auto* request) { request->set_id(std::string(100'000, 'x')); }},
  };
  TestDaemon daemon;
  for (const Row& row : rows) {
    ModelInferRequest request = IdsRequest({1});
    row.change(&request);
    ModelInferResponse response;
    grpc::ClientContext context;
    const grpc::Status status = daemon.Infer(request, &response, &context);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << row.reason;
    EXPECT_THAT(status.error_message(), HasSubstr(row.message));
    EXPECT_EQ(Trailer(context, kReasonTrailer), row.reason);
    const std::string labels = absl::StrCat("model=\"text\",reason=\"", row.reason, "\"");
    EXPECT_EQ(daemon.Metric("sluice_rejected_total", labels), 1);
  }
  EXPECT_EQ(daemon.Metric("sluice_admitted_total"), 0);
}

TEST(UnaryInferTest, UnknownModelsAndVersionsAreNotFound) {
  TestDaemon daemon;
  const std::string nul("te\0xt", 5);
  for (const std::string& name :
       {std::string("absent"), std::string("../text"), nul, std::string()}) {
    ModelInferRequest request = IdsRequest({1});
    request.set_model_name(name);
    ModelInferResponse response;
    grpc::ClientContext context;
    EXPECT_EQ(daemon.Infer(request, &response, &context).error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(Trailer(context, kReasonTrailer), "not_found");
  }
  ModelInferRequest request = IdsRequest({1});
  ModelInferResponse response;
  request.set_model_version("2");
  EXPECT_EQ(daemon.Infer(request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  request.set_model_version("newest");
  EXPECT_EQ(daemon.Infer(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_model_version("1");
  EXPECT_TRUE(daemon.Infer(request, &response).ok());
}

TEST(UnaryInferTest, AFailingRequestDoesNotAffectOthers) {
  TestDaemon::Options options;
  options.backend.poison_token = 99;
  TestDaemon daemon(options);
  ModelInferRequest both = IdsRequest({1, 2});
  ModelInferResponse response;
  EXPECT_EQ(daemon.Infer(IdsRequest({1, 99}), &response).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(daemon.Infer(both, &response).ok());
  EXPECT_EQ(daemon.Metric("sluice_requests_total", "code=\"INTERNAL\""), 1);
  daemon.ExpectBalanced();
}

// A daemon whose device is busy with a first request until the gate opens.
class BusyDaemonTest : public ::testing::Test {
 protected:
  explicit BusyDaemonTest(const TestDaemon::Options& options = {}) : daemon_(options) {
    daemon_.backend().OnReplay([this](const RecordedBatch&) {
      gate_.Pass();
      return absl::OkStatus();
    });
    first_ = std::async(std::launch::async, [this] {
      ModelInferResponse response;
      return daemon_.Infer(IdsRequest({1, 1}), &response);
    });
    gate_.AwaitArrivals(1);
  }

  // Opens the gate and expects that the first request succeeds.
  void ExpectFirstSucceeds() {
    gate_.Open();
    EXPECT_TRUE(first_.get().ok());
  }

  bool Ran(int32_t token) const {
    for (const RecordedBatch& batch : daemon_.backend().batches()) {
      for (const std::vector<int32_t>& sequence : batch.sequences) {
        if (std::count(sequence.begin(), sequence.end(), token) != 0) return true;
      }
    }
    return false;
  }

  Gate gate_;  // outlives the engine's thread
  mutable TestDaemon daemon_;
  std::future<grpc::Status> first_;
};

TEST_F(BusyDaemonTest, ARequestCancelledInTheQueueNeverRuns) {
  grpc::ClientContext context;
  std::future<grpc::Status> second = std::async(std::launch::async, [&] {
    ModelInferResponse response;
    return daemon_.Infer(IdsRequest({77}), &response, &context);
  });
  daemon_.AwaitMetric("sluice_admitted_total", 2);
  context.TryCancel();
  EXPECT_EQ(second.get().error_code(), grpc::StatusCode::CANCELLED);
  daemon_.AwaitMetric("sluice_requests_waiting", 0);
  ExpectFirstSucceeds();
  daemon_.AwaitMetric("sluice_requests_total", 2);
  EXPECT_FALSE(Ran(77));
  EXPECT_EQ(daemon_.Metric("sluice_cancelled_total", "stage=\"queue\""), 1);
  daemon_.ExpectBalanced();
}

TEST_F(BusyDaemonTest, CancellingARunningRequestEndsItsCallAtOnce) {
  grpc::ClientContext context;
  std::future<grpc::Status> second = std::async(std::launch::async, [&] {
    ModelInferResponse response;
    return daemon_.Infer(IdsRequest({77}), &response, &context);
  });
  daemon_.AwaitMetric("sluice_admitted_total", 2);
  context.TryCancel();
  EXPECT_EQ(second.get().error_code(), grpc::StatusCode::CANCELLED) << "the gate is still closed";
  ExpectFirstSucceeds();
}

TEST_F(BusyDaemonTest, ARequestThatExpiresInTheQueueNeverRuns) {
  ModelInferRequest request = IdsRequest({77});
  constexpr std::chrono::microseconds kTimeout = std::chrono::seconds(3);
  SetInt(&request, "timeout", kTimeout.count());
  std::future<grpc::Status> second = std::async(std::launch::async, [&] {
    ModelInferResponse response;
    return daemon_.Infer(request, &response);
  });
  daemon_.AwaitMetric("sluice_admitted_total", 2);
  ASSERT_EQ(second.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
      << "expired before it was processed";
  second.wait_for(kTimeout + std::chrono::milliseconds(5));  // it may end before the gate opens
  ExpectFirstSucceeds();
  EXPECT_EQ(second.get().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_FALSE(Ran(77));
  EXPECT_EQ(daemon_.Metric("sluice_deadline_missed_total", "stage=\"queue\""), 1);
  daemon_.ExpectBalanced();
}

TEST_F(BusyDaemonTest, APassedGrpcDeadlineCountsAsExpired) {
  const auto stub = daemon_.ConnectedStub();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
  ModelInferResponse response;
  EXPECT_EQ(stub->ModelInfer(&context, IdsRequest({77}), &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  // The deadline was sent as a rounded duration, so the daemon's copy is a little later.
  const auto surely_passed = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < surely_passed) std::this_thread::yield();
  ExpectFirstSucceeds();
  daemon_.AwaitMetric("sluice_requests_total", 2);
  EXPECT_FALSE(Ran(77));
  EXPECT_EQ(daemon_.Metric("sluice_requests_total", "code=\"DEADLINE_EXCEEDED\""), 1);
  daemon_.ExpectBalanced();
}

TEST_F(BusyDaemonTest, ALostConnectionCancelsItsRequests) {
  auto channel = daemon_.Channel();
  auto stub = inference::GRPCInferenceService::NewStub(channel);
  auto context = std::make_unique<grpc::ClientContext>();
  ModelInferRequest request = IdsRequest({77});
  ModelInferResponse response;
  std::promise<void> done;
  stub->async()->ModelInfer(context.get(), &request, &response,
                            [&done](grpc::Status) { done.set_value(); });
  daemon_.AwaitMetric("sluice_admitted_total", 2);
  context->TryCancel();
  done.get_future().wait();
  stub.reset();
  channel.reset();
  daemon_.AwaitMetric("sluice_requests_waiting", 0);
  ExpectFirstSucceeds();
  EXPECT_FALSE(Ran(77));
}

class SmallQueueTest : public BusyDaemonTest {
 protected:
  static TestDaemon::Options Small() {
    TestDaemon::Options options;
    options.engine.queue.max_requests = 1;
    return options;
  }
  SmallQueueTest() : BusyDaemonTest(Small()) {}
};

TEST_F(SmallQueueTest, AFullQueueAnswersWithAPushback) {
  grpc::ClientContext context;
  ModelInferResponse response;
  const grpc::Status status = daemon_.Infer(IdsRequest({77}), &response, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Trailer(context, kReasonTrailer), "queue_full");
  int pushback_ms = 0;
  EXPECT_TRUE(absl::SimpleAtoi(Trailer(context, kPushbackTrailer), &pushback_ms));
  EXPECT_GE(pushback_ms, 10);
  EXPECT_LE(pushback_ms, 10'000);
  EXPECT_EQ(daemon_.Metric("sluice_rejected_total", "reason=\"queue_full\""), 1);
  ExpectFirstSucceeds();
  daemon_.ExpectBalanced();
}

// After the queue has refused a request, it refuses others based on a few fields until it is
// shorter.
TEST_F(SmallQueueTest, AFullQueueRefusesWithoutReadingTheRequest) {
  ModelInferResponse response;
  ASSERT_EQ(daemon_.Infer(IdsRequest({77}), &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  ModelInferRequest wrong = IdsRequest({77});
  wrong.mutable_inputs(0)->set_datatype("NONE");
  grpc::ClientContext context;
  const grpc::Status status = daemon_.Infer(wrong, &response, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("may use 1 requests (engine.queue.max_requests)"));
  EXPECT_EQ(Trailer(context, kReasonTrailer), "queue_full");
  EXPECT_NE(Trailer(context, kPushbackTrailer), "");
  EXPECT_EQ(daemon_.Metric("sluice_rejected_total", "reason=\"queue_full\""), 2);
  wrong.set_model_name("unknown");
  EXPECT_EQ(daemon_.Infer(wrong, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  wrong.set_model_name("text");
  SetInt(&wrong, "timeout", 1'000'000);
  EXPECT_EQ(daemon_.Infer(wrong, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT)
      << "its own deadline applies";
  ExpectFirstSucceeds();
  EXPECT_TRUE(daemon_.Infer(IdsRequest({77}), &response).ok());
  daemon_.ExpectBalanced();
}

TEST(UnaryInferTest, ClientAndServerCountTheSameEnds) {
  TestDaemon daemon;
  constexpr int kClients = 64;
  constexpr int kCalls = 20;
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  std::atomic<int> ok = 0, refused = 0, other = 0;
  const auto call = [&](const auto& stub, std::mt19937_64& random) {
    std::vector<int32_t> prompt(1 + random() % 20);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 258);
    ModelInferRequest request = IdsRequest(prompt);
    const int count = 1 + static_cast<int>(random() % 5);
    SetInt(&request, "max_tokens", count);
    const bool wrong = random() % 5 == 0;
    if (wrong) SetInt(&request, "top_k", 1000);
    ModelInferResponse response;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);  // one of 64 connections at once may fail; retry
    const grpc::Status status = stub->ModelInfer(&context, request, &response);
    if (status.ok()) {
      EXPECT_EQ(Values<int32_t>(RawOutput(response, "output_ids")), GreedyTokens(prompt, count));
      ++ok;
    } else if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) {
      ++refused;
    } else {
      ADD_FAILURE() << status.error_code() << " " << status.error_message();
      ++other;
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      std::mt19937_64 random(kSeed * 1000 + i);
      const auto stub = daemon.Stub();
      for (int j = 0; j < kCalls; ++j) call(stub, random);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(ok + refused, kClients * kCalls);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(other, 0);
  EXPECT_EQ(daemon.Metric("sluice_requests_total", "code=\"OK\""), ok);
  EXPECT_EQ(daemon.Metric("sluice_rejected_total"), refused);
  daemon.ExpectBalanced();
}

TEST(UnaryInferTest, RandomCancellationsEndEveryCallOnce) {
  TestDaemon daemon;
  constexpr int kClients = 16;
  constexpr int kCalls = 40;
  constexpr uint64_t kSeed = 6;
  SCOPED_TRACE(kSeed);
  std::atomic<int> ok = 0, cancelled = 0, expired = 0, unreachable = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      std::mt19937_64 random(kSeed * 1000 + i);
      const auto stub = daemon.Stub();
      for (int j = 0; j < kCalls; ++j) {
        ModelInferRequest request = IdsRequest({1, 2, 3});
        SetInt(&request, "max_tokens", 40);
        ModelInferResponse response;
        grpc::ClientContext context;
        // gRPC 1.51 may read the errno of another call instead of connect's and then reports a
        // failure.
        context.set_wait_for_ready(true);
        if (random() % 2 == 0) {
          context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::microseconds(random() % 3000));
        }
        std::promise<grpc::Status> done;
        stub->async()->ModelInfer(&context, &request, &response, [&done](grpc::Status status) {
          done.set_value(std::move(status));
        });
        // The delay of the cancellation ranges from zero to long after the answer, on fast and on
        // busy machines.
        for (uint64_t spin = (uint64_t{1} << random() % 9) - 1; spin > 0; --spin) {
          std::this_thread::yield();
        }
        if (random() % 2 == 0) context.TryCancel();
        const grpc::Status status = done.get_future().get();
        ok += status.ok();
        cancelled += status.error_code() == grpc::StatusCode::CANCELLED;
        expired += status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
        unreachable += status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(ok + cancelled + expired + unreachable, kClients * kCalls);
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(expired, 0);
  // The engine ends the cancelled requests a little later.
  daemon.AwaitMetric("sluice_requests_waiting", 0);
  daemon.AwaitMetric("sluice_requests_running", 0);
  daemon.ExpectBalanced();
}

}  // namespace
}  // namespace sluice
