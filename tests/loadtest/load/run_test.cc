// Tests the load generator against servers of known behaviour over real sockets. No test depends on
// the speed of the machine: servers never answer early, and all assertions follow from that.
#include "loadtest/load/run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "loadtest/load/stats.h"
#include "loadtest/load/test_server.h"

namespace sluice::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RunTest : public testing::Test {
 protected:
  void Serve(const TestServerOptions& options) {
    auto server = TestServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto channels = Connect(server_->address(), {}, 2, seconds(180));
    ASSERT_TRUE(channels.ok()) << channels.status();
    channels_ = *std::move(channels);
  }

  PhaseData Run(double rate, nanoseconds duration) {
    WorkloadOptions workload;
    workload.arrivals = ArrivalKind::kConstant;
    workload.lengths = "fixed:8";
    const auto arrivals = MakeSchedule(workload, {}, rate, duration);
    EXPECT_TRUE(arrivals.ok());
    const auto payloads = pool_.Assign(*arrivals);
    EXPECT_TRUE(payloads.ok());
    if (answers_) answers_->Prepare(pool_.payloads());
    return RunOpenLoop(options_, channels_, pool_, *arrivals, *payloads, duration, answers_.get(),
                       &live_);
  }

  PhaseData RunClosed(int concurrency, nanoseconds duration) {
    const auto payloads = pool_.Assign({{nanoseconds{0}, 8, 0}, {nanoseconds{0}, 9, 0}});
    EXPECT_TRUE(payloads.ok());
    return RunClosedLoop(options_, channels_, pool_, *payloads, concurrency, duration, nullptr,
                         &live_);
  }

  static PayloadOptions FourVariants() {
    PayloadOptions options;
    options.variants = 4;
    return options;
  }

  static int64_t Count(const PhaseData& data, Outcome outcome) {
    int64_t count = 0;
    for (const CallRecord& call : data.calls) count += call.outcome == outcome ? 1 : 0;
    return count;
  }

  RunOptions options_;
  std::unique_ptr<AnswerBook> answers_;
  PayloadPool pool_{FourVariants()};
  Live live_;
  Channels channels_;
  std::unique_ptr<TestServer> server_;
};

// Tests that hold for unary calls and for streams.
class BothMethodsTest : public RunTest, public testing::WithParamInterface<bool> {
 protected:
  BothMethodsTest() { options_.streaming = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Method, BothMethodsTest, testing::Bool(),
                         [](const auto& method) { return method.param ? "Stream" : "Unary"; });

TEST_P(BothMethodsTest, EveryArrivalIsSentOnceAndAnswered) {
  options_.senders = 2;
  Serve({});
  const PhaseData data = Run(400, seconds(1));
  EXPECT_EQ(data.calls.size(), 400u);
  EXPECT_EQ(server_->requests(), 400);
  EXPECT_EQ(Count(data, Outcome::kOk), 400);
  EXPECT_EQ(live_.sent, 400);
  EXPECT_EQ(live_.done, 400);
  EXPECT_EQ(live_.missed, 0);
  for (const CallRecord& call : data.calls) {
    EXPECT_GE(call.sent, call.scheduled) << "nothing is sent early";
    EXPECT_GE(call.done, call.sent);
  }
}

TEST_P(BothMethodsTest, NoLatencyIsBelowTheDelayOfTheServer) {
  TestServerOptions server;
  server.delay = milliseconds(40);
  Serve(server);
  const PhaseStats stats = Analyse(Run(100, seconds(1)), nanoseconds{0}, {});
  EXPECT_EQ(stats.latency.count, 100);
  EXPECT_GE(stats.latency.min, milliseconds(40));
  EXPECT_GE(stats.service.min, milliseconds(40));
}

TEST_P(BothMethodsTest, AStallDelaysEveryCallThatArrivesInIt) {
  TestServerOptions server;
  server.stall_after = milliseconds(500);
  server.stall = seconds(1);
  Serve(server);
  const PhaseData data = Run(200, seconds(3));
  const PhaseStats stats = Analyse(data, nanoseconds{0}, {});
  // A third of the arrivals are in the stall. A client that waits for answers before it sends would
  // send only a few calls during the stall.
  int64_t waited = 0;
  for (const CallRecord& call : data.calls) {
    waited += call.done - call.scheduled >= milliseconds(500) ? 1 : 0;
  }
  EXPECT_GE(waited, 95);  // half of the 200 calls of that second
  EXPECT_GE(stats.latency.max, milliseconds(950));
  EXPECT_GE(stats.latency.p99, milliseconds(900));
  EXPECT_FALSE(stats.meets_objective);
}

TEST_P(BothMethodsTest, AnswersThatDifferAreFound) {
  TestServerOptions server;
  server.wrong_every = 10;
  Serve(server);
  answers_ = std::make_unique<AnswerBook>();
  const PhaseData data = Run(200, seconds(1));
  // The first answer to each of the 4 requests counts as correct. None of these is one of the wrong
  // answers, which are every tenth.
  EXPECT_EQ(Count(data, Outcome::kWrong), 20);
  EXPECT_EQ(Count(data, Outcome::kOk), 180);
}

TEST_P(BothMethodsTest, LateAnswersMissTheDeadline) {
  TestServerOptions server;
  server.delay = milliseconds(300);
  Serve(server);
  options_.deadline = milliseconds(100);
  const PhaseData data = Run(50, seconds(1));
  EXPECT_EQ(Count(data, Outcome::kDeadline), 50);
  EXPECT_EQ(live_.missed, 50);
}

TEST_P(BothMethodsTest, CallsThatDoNotEndAreCutOff) {
  TestServerOptions server;
  server.delay = seconds(20);
  Serve(server);
  options_.drain = milliseconds(500);
  const PhaseData data = Run(20, seconds(1));
  EXPECT_EQ(Count(data, Outcome::kUnfinished), 20);
  EXPECT_EQ(Analyse(data, nanoseconds{0}, {}).within, 0);
}

TEST_P(BothMethodsTest, AClosedLoopKeepsItsNumberInFlight) {
  TestServerOptions server;
  server.delay = milliseconds(100);
  Serve(server);
  const PhaseData data = RunClosed(3, seconds(1));
  EXPECT_EQ(Count(data, Outcome::kOk), static_cast<int64_t>(data.calls.size()));
  EXPECT_GE(data.calls.size(), 3u);
  EXPECT_LE(data.calls.size(), 33u) << "at most 3 calls per 100 ms for 1 s, plus a last round";
}

TEST_P(BothMethodsTest, OverloadIsRejectedAndCountedAsSuch) {
  TestServerOptions server;
  server.service_time = milliseconds(10);
  server.queue = 5;
  Serve(server);
  const PhaseData data = Run(1000, seconds(1));
  const int64_t ok = Count(data, Outcome::kOk);
  EXPECT_EQ(ok + Count(data, Outcome::kRejected), 1000);
  EXPECT_GT(ok, 0);
  nanoseconds last{0};
  for (const CallRecord& call : data.calls) last = std::max(last, call.done);
  EXPECT_LE(ok, last / server.service_time + 1) << "the server answers one call at a time";
  ASSERT_EQ(data.errors.size(), 1u);
  EXPECT_EQ(data.errors.at(grpc::StatusCode::RESOURCE_EXHAUSTED).count, 1000 - ok);
}

TEST_F(RunTest, BeyondMaxInFlightNothingIsSent) {
  TestServerOptions server;
  server.delay = seconds(20);  // longer than it takes to send all calls
  Serve(server);
  options_.max_in_flight = 10;
  options_.drain = seconds(5);
  const PhaseData data = Run(100, seconds(1));
  EXPECT_EQ(Count(data, Outcome::kNotSent), 90);
  EXPECT_EQ(server_->requests(), 10);
}

TEST_F(RunTest, LostServerIsAnError) {
  Serve({});
  options_.streaming = true;
  server_.reset();
  const PhaseData data = Run(50, milliseconds(500));
  EXPECT_EQ(Count(data, Outcome::kError), 25);
}

TEST_F(RunTest, NoServerIsUnavailable) {
  EXPECT_EQ(Connect("127.0.0.1:1", {}, 1, milliseconds(200)).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::load
